// Which ranks the options and a launcher ask for, and where they run.
#include <utility>

#include <fmt/format.h>

#include "megamoe/backend.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "cli/layer_options.hpp"

namespace megamoe::cli {
namespace {

constexpr std::int64_t kDefaultRanks = 4;

}  // namespace

RankTeam make_team(LayerOptionValues& values, const Environment& environment) {
  const std::optional<LaunchedRank> launched = launched_rank(environment);
  // A step of one task is also what an interactive shell under srun looks like.
  const bool shell = launched && launched->launcher == Launcher::slurm && launched->ranks == 1;
  if (!launched || (shell && values.ranks)) {
    values.layer.ranks = values.ranks.value_or(kDefaultRanks);
    return RankTeam::forked(values.layer.ranks, values.deadline);
  }
  check_argument(!values.ranks || *values.ranks == launched->ranks,
                 "--ranks is {}, but {} started {} ranks: leave --ranks out, or have {} start {}",
                 values.ranks.value_or(0), name_of(launched->launcher), launched->ranks,
                 name_of(launched->launcher), values.ranks.value_or(0));
  values.layer.ranks = launched->ranks;
  return RankTeam::launched(*launched, values.deadline);
}

namespace {

/// What among the options only the CPU has, or which the user will have meant for it; "" if there
/// is nothing.
std::string cpu_option(const LayerOptionValues& values) {
  if (values.plan.workers) return "--workers";
  if (values.plan.k1_workers) return "--k1-workers";
  if (values.plan.k2_workers) return "--k2-workers";
  if (values.plan.block_rows) return "--block-rows";
  if (values.plan.instruction_set) return "--instruction-set";
  if (values.plan.bind_threads) return "--bind";
  return "";
}

}  // namespace

TeamChoice choose_team(const RankTeam& team, const LayerSource& source,
                       const LayerOptionValues& values) {
  const std::string option = cpu_option(values);
  if (values.backend == Backend::automatic && !option.empty()) {
    return {team, fmt::format("{} is given; --backend cuda would take CUDA devices", option)};
  }
  BackendChoice choice =
      choose_backend(source.config(), static_cast<int>(source.ranks()), values.backend);
  const bool asked = values.backend != Backend::automatic;
  return {choice.backend == Backend::cuda ? team.on_devices() : team,
          asked ? std::string() : std::move(choice.reason)};
}

}  // namespace megamoe::cli
