#include "plan/plan.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"
#include "base/names.hpp"

namespace megamoe {
namespace {

// One pull task is some 100 KiB at H = 7168: long enough to hide its ticket, short enough to share
// a block out.
constexpr std::int64_t kPullRows = 16;
// Eight strips: with a group of 128 intermediates per GEMM-1 task both kinds of task have the same
// panels and sums.
constexpr std::int64_t kGemm2Columns = 256;
constexpr std::int64_t kMaxWorkers = 1024;

// Sizes beyond these are typing errors: they also keep every product of the layout inside 63 bits.
constexpr std::int64_t kMaxFeatures = std::int64_t{1} << 20;
constexpr std::int64_t kMaxExperts = std::int64_t{1} << 16;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
// Every route of a group may name one expert, whose rows one half of a count word counts
// (routing/count_word.hpp).
constexpr std::int64_t kMaxExpertRows = 0xffffffff;

void check_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  check_argument(value >= low && value <= high, "{} is {}: {} to {} is wanted", what, value, low,
                 high);
}

std::int64_t worker_count(const char* what, const std::optional<std::int64_t>& wanted,
                          std::int64_t otherwise) {
  if (!wanted) return otherwise;
  check_range(what, *wanted, 1, kMaxWorkers);
  return *wanted;
}

/// The split's two sets: who is not named takes what the other leaves.
void share_workers_out(const PlanOverrides& overrides, Plan& plan) {
  // GEMM 1 has twice the arithmetic of GEMM 2.
  const std::int64_t two_thirds = (2 * plan.workers + 1) / 3;
  const std::int64_t left_by_k2 =
      overrides.k2_workers ? plan.workers - worker_count("k2_workers", overrides.k2_workers, 1)
                           : min64(two_thirds, plan.workers - 1);
  plan.k1_workers = worker_count("k1_workers", overrides.k1_workers, max64(1, left_by_k2));
  plan.k2_workers =
      worker_count("k2_workers", overrides.k2_workers, max64(1, plan.workers - plan.k1_workers));
}

std::string human_bytes(std::int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, units[unit]);
}

}  // namespace

void validate(const LayerConfig& config) {
  check_range("hidden", config.hidden, 1, kMaxFeatures);
  check_range("intermediate", config.intermediate, 1, kMaxFeatures);
  check_range("experts", config.experts, 1, kMaxExperts);
  check_range("shared_experts", config.shared_experts, 0, 64);
  check_range("top_k", config.top_k, 1, std::min(kMaxTopK, config.experts));
  check_range("max_tokens", config.max_tokens, 1, kMaxTokens);
  const bool whole_groups = config.hidden % 32 == 0 && config.intermediate % 32 == 0;
  check_argument(
      whole_groups || weight_format(config.recipe) != WeightFormat::fp4,
      "recipe {} has one scale per 32 columns, but hidden is {} and intermediate {}: multiples "
      "of 32 are wanted",
      name_of(config.recipe), config.hidden, config.intermediate);
  check_argument(whole_groups || make_shape(config, 1).shared_weights != WeightFormat::fp4,
                 "shared_weights fp4 have one scale per 32 columns, but hidden is {} and "
                 "intermediate {}: multiples of 32 are wanted",
                 config.hidden, config.intermediate);
  if (config.activation_limit) {
    check_argument(*config.activation_limit > 0,
                   "activation_limit is {}: a positive number is wanted, or none for no clamp",
                   *config.activation_limit);
  }
}

std::int64_t choose_block_rows(std::int64_t expected_rows) {
  for (std::int64_t candidate : kBlockRows) {
    if (candidate >= expected_rows) return candidate;
  }
  return kMaxBlockRows;
}

Plan make_plan(const LayerConfig& config, std::int64_t ranks, const CpuMachine& machine,
               const PlanOverrides& overrides) {
  validate(config);
  check_range("ranks", ranks, 1, 1024);
  check_range("ranks x max_tokens", ranks * config.max_tokens, 1, kMaxExpertRows);
  Plan plan;
  plan.config = config;
  plan.shape = make_shape(config, ranks);
  plan.arena = make_arena_layout(plan.shape);
  plan.machine = machine;

  const std::int64_t expected_rows =
      ceil_div(config.max_tokens * ranks * config.top_k, config.experts);
  plan.block_rows = overrides.block_rows.value_or(choose_block_rows(expected_rows));
  check_argument(std::find(std::begin(kBlockRows), std::end(kBlockRows), plan.block_rows) !=
                     std::end(kBlockRows),
                 "block_rows is {}: 16, 32, 64, 96, 128 or 192 is wanted", plan.block_rows);
  plan.pull_rows = kPullRows;
  plan.gemm2_columns = kGemm2Columns;

  plan.workers =
      worker_count("workers", overrides.workers, max64(1, min64(machine.cores, kMaxWorkers)));
  share_workers_out(overrides, plan);

  plan.walk.pull_parts = plan.block_rows / plan.pull_rows;
  plan.walk.gemm1_parts = plan.shape.intermediate_groups();
  plan.walk.gemm2_parts = ceil_div(config.hidden, plan.gemm2_columns);
  plan.walk.experts_per_wave =
      min64(plan.shape.pool_experts(), experts_per_wave(plan.workers, plan.walk.gemm1_parts));
  return plan;
}

std::int64_t Plan::threads() const {
  return max64(workers, k1_workers + k2_workers);
}

std::string Plan::explain() const {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  const std::string limit =
      config.activation_limit ? fmt::format(", limit {}", *config.activation_limit) : "";
  const std::string shared =
      shape.shared_weights ? fmt::format(" in {}", name_of(*shape.shared_weights)) : "";
  line("layer",
       fmt::format("H {} I {} E {} (+{} shared{}) k {}, {}, {}{}", config.hidden,
                   config.intermediate, config.experts, config.shared_experts, shared, config.top_k,
                   name_of(config.recipe), name_of(config.activation), limit));
  line("ranks", fmt::format("{}, {} experts each, {} tokens each (capacity {})", shape.ranks,
                            shape.experts_per_rank(), config.max_tokens, shape.max_tokens));
  line("kernels", std::string(name_of(machine.instruction_set)));
  line("workers",
       fmt::format("{} fused or staged; split: {} for dispatch and GEMM 1, {} for GEMM 2", workers,
                   k1_workers, k2_workers));
  line("block", fmt::format("{} rows of one expert, pulled {} at a time", block_rows, pull_rows));
  line("GEMM 1", fmt::format("{} tasks per block, {} intermediates each", walk.gemm1_parts,
                             kIntermediateGroup));
  line("GEMM 2",
       fmt::format("{} tasks per block, {} outputs each", walk.gemm2_parts, gemm2_columns));
  line("wave", fmt::format("{} of {} experts", walk.experts_per_wave, shape.pool_experts()));
  line("arena",
       fmt::format("{} per rank, reserved; pages come as rows arrive", human_bytes(arena.bytes)));
  for (const Region& region : arena.regions) {
    line("", fmt::format("{:<22}{:>12}{}", region.name, human_bytes(region.bytes()),
                         region.banks == 2 ? "  (two banks)" : ""));
  }
  return text;
}

}  // namespace megamoe
