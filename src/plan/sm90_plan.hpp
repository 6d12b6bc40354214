// From a call's sizes to the kernel that runs it on a Hopper GPU: pure, and tested without one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megamoe/types.hpp"

#include "layout/sm90_arena.hpp"
#include "plan/sm90_kernel.hpp"

namespace megamoe::sm90 {

/// What the plan must know of a rank's share of a GPU.
struct GpuMachine {
  std::int64_t multiprocessors = 132;  ///< granted
  std::int64_t blocks = 132;           ///< of a fused or staged call, one per multiprocessor
};

struct GpuOverrides {
  std::optional<int> token_tile;  ///< one of kKernelShapes
  std::optional<int> stages;
  std::optional<int> experts_per_wave;
  Execution execution = Execution::fused;
  /// Multiprocessors of the split's K1 and K2, which run at once.
  std::optional<std::int64_t> k1_blocks;
  std::optional<std::int64_t> k2_blocks;
  // For tests of the split's progress, whose kernels a device may begin in any order.
  bool k2_first = false;  ///< K2 is launched before K1
  bool k1_lost = false;   ///< K1 is not launched
};

struct GpuPlan {
  LayerShape shape;
  Execution execution = Execution::fused;
  KernelShape kernel{};
  GpuOverrides overrides;
  SharedLayout shared;      ///< of the fused kernel or K1
  SharedLayout shared2;     ///< of K2, which pulls no rows
  std::int64_t blocks = 0;  ///< of the fused kernel or K3
  std::int64_t k1_blocks = 0;
  std::int64_t k2_blocks = 0;
  std::int64_t experts_per_wave = 0;
  std::int64_t gemm1_tasks_per_block = 0;
  std::int64_t gemm2_tasks_per_block = 0;

  /// The plan in words and numbers.
  std::string explain() const;
};

/// Throws Error{unsupported} for what these kernels do not do (recipe, shared experts, ranks).
void validate_gpu(const LayerConfig& config, std::int64_t ranks);

/// The token tile for an expected number of rows per expert, whose standard deviation is taken as
/// that of a random choice: the one that `part` has with the least expected cost of an expert's
/// blocks.
KernelShape choose_kernel(std::int64_t expected_rows, KernelPart part = KernelPart::fused,
                          bool fp8_weights = false);

/// For a call of `tokens` tokens per rank. Throws Error{invalid_argument} for overrides that cannot
/// be and for shapes whose stages do not fit in shared memory.
GpuPlan make_gpu_plan(const LayerShape& shape, std::int64_t tokens, const GpuMachine& machine,
                      const GpuOverrides& overrides = {});

}  // namespace megamoe::sm90
