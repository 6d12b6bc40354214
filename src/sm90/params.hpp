// The arguments of the kernels, by value: everything that the host decides before a call.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

#include "layout/sm90_arena.hpp"
#include "numerics/activation.hpp"
#include "plan/sm90_kernel.hpp"

namespace megamoe::sm90 {

/// Ranks of one load/store domain that a kernel can address.
inline constexpr int kMaxRanks = 16;

/// What a wait waits for; the host turns it into words.
enum class WaitSignal : std::uint32_t {
  none,
  scatter_of_blocks,
  barrier_a,
  barrier_a_layer,
  block_arrival,
  block_readiness,
  barrier_b,
  pipeline,
  k1_open,
};

/// One of the layer's two matrices, for all local experts.
struct WeightPointers {
  const std::byte* tiles;    ///< experts one after another, PackedMatrix::bytes() each
  const float* row_factors;  ///< [expert][packed rows]
  const float* bias;         ///< [expert][packed rows], or null
};

struct KernelParams {
  std::byte* arena;
  std::int64_t peer_offset[kMaxRanks];  ///< map(pointer, rank) = pointer + peer_offset[rank]
  std::int64_t region_offset[kGpuRegions];
  std::int64_t bank_bytes[kGpuRegions];
  WeightPointers w1;
  WeightPointers w2;
  float4* scratch;  ///< activations that wait for their group's maximum; see roles/gemm1_epilogue
  __nv_bfloat16* y;
  const std::int32_t* tokens_word;  ///< T, read once per call; null: `tokens` is T
  std::int32_t tokens;
  std::int32_t hidden;
  std::int32_t top_k;
  std::int32_t experts;
  std::int32_t experts_per_rank;
  std::int32_t shared_experts;
  std::int32_t max_tokens;
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t groups;      ///< of 128 intermediates
  std::int32_t row_tiles2;  ///< of 128 rows in W2
  std::int32_t experts_per_wave;
  std::uint32_t layer;       ///< ordinal in the group, 1 or more
  std::int64_t deadline_ns;  ///< of every wait; 0: never
  ActivationRule activation;
  SharedLayout shared;

  constexpr std::int32_t pool_experts() const { return experts_per_rank + shared_experts; }
  constexpr std::int32_t k_blocks1() const { return (hidden + kTileColumns - 1) / kTileColumns; }
};

}  // namespace megamoe::sm90
