// The plan that a layer will have on CUDA devices: pure, and known without a device.
#pragma once

#include <cstdint>
#include <string>

#include "megamoe/layer.hpp"

#include "layout/sm90_arena.hpp"
#include "plan/sm90_plan.hpp"

namespace megamoe {

/// Multiprocessors of an H100 or H200 of the SXM kind: what is planned for where no device is.
inline constexpr std::int64_t kHopperMultiprocessors = 132;

struct CudaPlan {
  LayerConfig config;
  LayerShape shape;
  sm90::GpuMachine machine;
  sm90::GpuOverrides overrides;
  sm90::GpuArenaLayout arena;
  std::int64_t expert_bytes = 0;  ///< packed, of one expert

  /// Of a call; the tile follows the number of tokens.
  sm90::GpuPlan of_call(std::int64_t tokens, Execution execution = Execution::fused) const;
  sm90::GpuOverrides overrides_of(Execution execution) const;
  std::string explain() const;
};

/// Throws Error{invalid_argument, unsupported} for sizes, recipes and options that the kernels do
/// not have. multiprocessors: of this rank.
CudaPlan plan_cuda_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options,
                         std::int64_t multiprocessors);

}  // namespace megamoe
