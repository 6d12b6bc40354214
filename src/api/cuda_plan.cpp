#include "api/cuda_plan.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "layout/sm90_weights.hpp"
#include "plan/plan.hpp"

namespace megamoe {
namespace {

void refuse(const char* option, bool given, const char* why) {
  if (!given) return;
  fail(ErrorCode::unsupported, "{} is given, but {} on the cuda backend: leave it out", option,
       why);
}

double mebibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

CudaPlan plan_cuda_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options,
                         std::int64_t multiprocessors) {
  validate(config);
  sm90::validate_gpu(config, ranks);
  refuse("instruction_set", options.instruction_set.has_value(), "it has no meaning");
  refuse("bind_threads", options.bind_threads.has_value(), "it has no workers on processors");
  const std::int64_t blocks = options.workers.value_or(multiprocessors);
  check_argument(blocks >= 1 && blocks <= multiprocessors,
                 "workers is {}: 1 to {} is wanted, the multiprocessors that are this rank's",
                 blocks, multiprocessors);
  CudaPlan plan{.config = config,
                .shape = make_shape(config, ranks),
                .machine = {.multiprocessors = multiprocessors, .blocks = blocks},
                .overrides = {},
                .arena = {}};
  if (options.block_rows) plan.overrides.token_tile = static_cast<int>(*options.block_rows);
  plan.arena = sm90::make_gpu_arena_layout(plan.shape);
  plan.expert_bytes =
      sm90::packed_gemm1(plan.shape).bytes() + sm90::packed_gemm2(plan.shape).bytes();
  plan.overrides.k1_blocks = options.k1_workers;
  plan.overrides.k2_blocks = options.k2_workers;
  plan.of_call(config.max_tokens);  // refuses what no kernel can run
  if (options.k1_workers || options.k2_workers) plan.of_call(config.max_tokens, Execution::split);
  return plan;
}

sm90::GpuOverrides CudaPlan::overrides_of(Execution execution) const {
  sm90::GpuOverrides of_call = overrides;
  of_call.execution = execution;
  return of_call;
}

sm90::GpuPlan CudaPlan::of_call(std::int64_t tokens, Execution execution) const {
  return sm90::make_gpu_plan(shape, tokens, machine, overrides_of(execution));
}

std::string CudaPlan::explain() const {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  const std::string limit =
      config.activation_limit ? fmt::format(", limit {}", *config.activation_limit) : "";
  line("layer",
       fmt::format("H {} I {} E {} (+{} shared) k {}, {}, {}{}", config.hidden, config.intermediate,
                   config.experts, config.shared_experts, config.top_k, name_of(config.recipe),
                   name_of(config.activation), limit));
  line("ranks", fmt::format("{}, {} experts each, {} tokens each (capacity {})", shape.ranks,
                            shape.experts_per_rank(), config.max_tokens, shape.max_tokens));
  text += of_call(config.max_tokens).explain();
  if (machine.multiprocessors >= 2) {
    const sm90::GpuPlan split = of_call(config.max_tokens, Execution::split);
    line("split",
         fmt::format("K1 {} and K2 {} of {} multiprocessors at once, then K3 on {}; {} tokens "
                     "x {} rows",
                     split.k1_blocks, split.k2_blocks, machine.multiprocessors, split.blocks,
                     split.kernel.tokens, split.kernel.rows()));
  }
  std::string tiles;
  for (std::int64_t tokens = 1; tokens < config.max_tokens; tokens *= 4) {
    tiles += fmt::format("{} at {}, ", of_call(tokens).kernel.tokens, tokens);
  }
  line("token tile", fmt::format("by tokens: {}{} at {}", tiles,
                                 of_call(config.max_tokens).kernel.tokens, config.max_tokens));
  line("weights", fmt::format("{:.1f} MiB per expert, packed", mebibytes(expert_bytes)));
  line("arena", fmt::format("{:.1f} MiB per rank", mebibytes(arena.bytes)));
  for (const sm90::GpuRegionSpan& region : arena.regions) {
    line("", fmt::format("{:<22}{:>12}{}", region.name,
                         fmt::format("{:.2f} MiB", mebibytes(region.bytes())),
                         region.banks == 2 ? "  (two banks)" : ""));
  }
  return text;
}

}  // namespace megamoe
