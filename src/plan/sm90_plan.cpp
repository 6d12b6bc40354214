#include "plan/sm90_plan.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.hpp"
#include "base/names.hpp"
#include "schedule/walk.hpp"

namespace megamoe::sm90 {
namespace {

// Waves of six times the least size, so that no GEMM-2 task waits for the GEMM-1 task of a
// neighbour. Beyond two times the least size the factor does not matter: on an H200 whose power
// limit spreads equal runs over 10 %, 8192 tokens took as long with 3 as with 9 or all 32 experts
// in a wave.
constexpr std::int64_t kWaveFactor = 6;

// Of the multiprocessors of a split call K1's share. GEMM 1 is two thirds of the multiplications,
// but promotes its sums less often than GEMM 2; measured on an H200 with the v3 shape, 80 to 88 of
// 132 are best at 8 to 8192 tokens.
constexpr double kK1Share = 0.63;

std::int64_t share_of(std::string_view name, std::optional<std::int64_t> wanted, std::int64_t own,
                      std::int64_t most) {
  const std::int64_t blocks = wanted.value_or(own);
  check_argument(blocks >= 1 && blocks <= most,
                 "{} is {}: 1 to {} is wanted, the multiprocessors that it can have", name, blocks,
                 most);
  return blocks;
}

/// Blocks of K1 and K2.
void plan_parts(GpuPlan& plan, const GpuMachine& machine, const GpuOverrides& overrides) {
  plan.k1_blocks = plan.k2_blocks = machine.blocks;
  if (plan.execution != Execution::split) return;
  const std::int64_t all = machine.multiprocessors;
  check_argument(all >= 2, "split execution wants two multiprocessors at least: this rank has {}",
                 all);
  std::int64_t k1 =
      std::clamp<std::int64_t>(std::llround(static_cast<double>(all) * kK1Share), 1, all - 1);
  if (overrides.k2_blocks) k1 = max64(1, all - *overrides.k2_blocks);
  plan.k1_blocks = share_of("k1_workers", overrides.k1_blocks, k1, all - 1);
  plan.k2_blocks =
      share_of("k2_workers", overrides.k2_blocks, all - plan.k1_blocks, all - plan.k1_blocks);
}

KernelPart first_part(Execution execution) {
  return execution == Execution::fused ? KernelPart::fused : KernelPart::k1;
}

KernelShape kernel_with(int token_tile, KernelPart part, bool fp8_weights) {
  std::string tiles;
  for (KernelShape shape : kKernelShapes) {
    shape.fp8 = fp8_weights;
    if (!has_kernel(shape, part)) continue;
    if (shape.tokens == token_tile) return shape;
    tiles += fmt::format(" {}", shape.tokens);
  }
  fail(ErrorCode::invalid_argument, "token_tile is {}: one of{} is wanted", token_tile, tiles);
}

}  // namespace

void validate_gpu(const LayerConfig& config, std::int64_t ranks) {
  if (config.recipe != Recipe::fp8_fp4 && config.recipe != Recipe::fp8_fp8) {
    fail(ErrorCode::unsupported,
         "recipe {} does not run on this GPU backend yet: use fp8_fp4, fp8_fp8, or the cpu backend",
         name_of(config.recipe));
  }
  // Rows of x are copied in pieces of sixteen bytes.
  check_argument(config.hidden % 32 == 0, "hidden is {}: a multiple of 32 is wanted on a GPU",
                 config.hidden);
  if (config.shared_experts > 0 && shared_weight_format(config) != weight_format(config.recipe)) {
    fail(
        ErrorCode::unsupported,
        "shared experts with {} weights beside {} ones do not run on this GPU backend yet: use the "
        "cpu backend, or shared experts in {}",
        name_of(shared_weight_format(config)), name_of(weight_format(config.recipe)),
        name_of(weight_format(config.recipe)));
  }
  // A warp looks at a token's slots, a lane at each.
  check_argument(config.top_k + config.shared_experts <= 32,
                 "top_k {} and {} shared experts: on a GPU they are 32 together at most",
                 config.top_k, config.shared_experts);
  // Ranks of one load/store domain that a kernel's arguments have room for.
  check_argument(ranks >= 1 && ranks <= 16, "{} ranks: a GPU group has 1 to 16", ranks);
}

KernelShape choose_kernel(std::int64_t expected_rows, KernelPart part, bool fp8_weights) {
  // A block of N tokens costs about as much as N + 42: what does not depend on N, decoding first of
  // all, mostly hides behind the multiplications. Fitted to an H200 at 8 to 8192 tokens of five
  // shapes, where it takes the fastest tile or one within 3 % of it.
  constexpr double kFixedTokens = 42;
  const double rows = static_cast<double>(expected_rows);
  const double deviation = std::sqrt(std::max(rows, 1.0));
  KernelShape best{};
  double least = std::numeric_limits<double>::infinity();
  for (KernelShape shape : kKernelShapes) {
    shape.fp8 = fp8_weights;
    if (!has_kernel(shape, part)) continue;
    // Blocks of an expert: one, and one more for each multiple of N that its rows exceed.
    double blocks = 1;
    for (double full = shape.tokens; full < rows + 6 * deviation; full += shape.tokens) {
      blocks += 0.5 * std::erfc((full - rows) / (deviation * std::sqrt(2.0)));
    }
    const double cost = blocks * (shape.tokens + kFixedTokens);
    if (cost >= least) continue;
    least = cost;
    best = shape;
  }
  return best;
}

GpuPlan make_gpu_plan(const LayerShape& shape, std::int64_t tokens, const GpuMachine& machine,
                      const GpuOverrides& overrides) {
  GpuPlan plan;
  plan.shape = shape;
  plan.blocks = machine.blocks;
  const std::int64_t expected = ceil_div(tokens * shape.ranks * shape.top_k, shape.experts);
  const KernelPart part = first_part(overrides.execution);
  const bool fp8 = weight_format(shape.recipe) == WeightFormat::fp8;
  plan.kernel = overrides.token_tile ? kernel_with(*overrides.token_tile, part, fp8)
                                     : choose_kernel(expected, part, fp8);
  plan.shared = best_shared_layout(plan.kernel, shape.hidden, shape.pool_experts(), shape.ranks);
  if (overrides.stages) {
    plan.shared = shared_layout(plan.kernel, shape.hidden, shape.pool_experts(), shape.ranks,
                                *overrides.stages);
  }
  check_argument(plan.shared.stages >= 2 && plan.shared.bytes <= kMaxSharedBytes,
                 "hidden {} with {} experts per rank leaves no shared memory for two stages of {} "
                 "tokens: a smaller hidden size or fewer experts per rank are wanted",
                 shape.hidden, shape.pool_experts(), plan.kernel.tokens);
  check_argument(shape.experts * 8 <= plan.shared.dispatch - plan.shared.tokens,
                 "{} experts do not fit the counters of the kernel: at most {} are possible",
                 shape.experts, (plan.shared.dispatch - plan.shared.tokens) / 8);
  plan.shared2 = best_shared_layout(plan.kernel, 0, shape.pool_experts(), shape.ranks);
  plan.overrides = overrides;
  plan.execution = overrides.execution;
  plan_parts(plan, machine, overrides);
  plan.gemm1_tasks_per_block = shape.intermediate_groups();
  plan.gemm2_tasks_per_block =
      ceil_div(packed_gemm2(shape).row_tiles(), plan.kernel.weight_tiles());
  const std::int64_t blocks_per_expert = max64(1, ceil_div(expected, plan.kernel.tokens));
  plan.experts_per_wave = overrides.experts_per_wave.value_or(static_cast<int>(min64(
      shape.pool_experts(), experts_per_wave(kWaveFactor * machine.blocks,
                                             plan.gemm1_tasks_per_block * blocks_per_expert))));
  return plan;
}

std::string GpuPlan::explain() const {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  line("kernel", fmt::format("{} tokens x {} rows, {} math warpgroups, {} threads", kernel.tokens,
                             kernel.rows(), kernel.math_groups, kernel.threads()));
  const KernelPart part = first_part(execution);
  line("registers", fmt::format("{} math, {} loaders and dispatch", kernel.math_registers(part),
                                kernel.loader_registers(part)));
  line("pipeline", fmt::format("{} stages of {} B, {} of {} B of shared memory", shared.stages,
                               kernel.token_bytes() + kernel.weight_stage_bytes(), shared.bytes,
                               kMaxSharedBytes));
  if (execution == Execution::fused) {
    line("blocks", fmt::format("{}, one per multiprocessor", blocks));
  } else {
    line("blocks",
         fmt::format("K1 {}, K2 {} ({} stages), K3 {}, one per multiprocessor; {}", k1_blocks,
                     k2_blocks, shared2.stages, blocks,
                     execution == Execution::split ? "K1 and K2 at once" : "one after another"));
  }
  line("GEMM 1", fmt::format("{} tasks per block of tokens", gemm1_tasks_per_block));
  line("GEMM 2", fmt::format("{} tasks per block of tokens", gemm2_tasks_per_block));
  line("wave", fmt::format("{} of {} experts", experts_per_wave, shape.pool_experts()));
  return text;
}

}  // namespace megamoe::sm90
