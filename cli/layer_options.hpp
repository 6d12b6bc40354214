// The options that say which layer, input, ranks and workers: the same for every command that runs
// one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megamoe/layer.hpp"

#include "cli/layer_source.hpp"
#include "cli/machine_rates.hpp"
#include "cli/rank_team.hpp"

namespace CLI {
class App;
}

namespace megamoe::cli {

/// What the options of a command came to.
struct LayerOptionValues {
  LayerRequest layer;
  LayerOptions plan;
  Backend backend = Backend::automatic;
  std::optional<std::int64_t> ranks;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

/// Adds the options to a sub-command; the values are there once it is parsed.
std::shared_ptr<LayerOptionValues> add_layer_options(CLI::App& command);
/// The same without those that say how many tokens there are.
std::shared_ptr<LayerOptionValues> add_sweep_options(CLI::App& command);

/// --bandwidth and --gflops.
void add_rate_options(CLI::App& command, GivenRates& rates);

/// The ranks that the options and the environment ask for; layer.ranks is set to their number.
/// Throws what launched_rank throws, and Error{invalid_argument} for --ranks that a launcher
/// contradicts.
RankTeam make_team(LayerOptionValues& values, const Environment& environment);

/// A team on the backend that the options come to.
struct TeamChoice {
  RankTeam team;
  std::string reason;  ///< why that backend, a sentence; "" if there was no other
};

/// Where the source's layer runs: on CUDA devices if they are asked for or,
/// without an option that only the CPU has, present and fit. Throws what choose_backend throws.
TeamChoice choose_team(const RankTeam& team, const LayerSource& source,
                       const LayerOptionValues& values);

}  // namespace megamoe::cli
