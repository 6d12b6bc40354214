// Dispatch: two warps of every block pull rows from their source ranks into the pool.
//
// On its way a row is rebased: x comes with one exponent per 32 columns, GEMM 1 wants one per 512,
// so that the tensor cores can accumulate in place over 512. The largest exponent among groups that
// hold a nonzero value is kept; the other groups' values are scaled down by a power of two, which
// is exact but for values that become subnormal in E4M3.
#pragma once

#include "numerics/ue8m0.hpp"
#include "routing/round_robin.hpp"
#include "sm90/context.cuh"

namespace megamoe::sm90 {

/// 2^-shift as f16, twice; zero from 25 on, where no E4M3 value leaves a trace.
__device__ __forceinline__ std::uint32_t half2_power(std::uint32_t shift) {
  const std::uint32_t normal = (15u - shift) << 10;
  const std::uint32_t subnormal = shift > 24 ? 0u : 1u << (24u - shift);
  const std::uint32_t half = shift <= 14 ? normal : subnormal;
  return half | half << 16;
}

/// Two E4M3 values times 2^-shift, rounded to nearest even. f16 holds every product exactly that
/// does not round to zero anyway.
__device__ __forceinline__ std::uint16_t scale_e4m3_pair(std::uint16_t pair, std::uint32_t power) {
  std::uint16_t result;
  // volatile: one after the other, since the dispatch warps have few registers.
  asm volatile(
      "{\n.reg .b32 wide, scaled;\n"
      "cvt.rn.f16x2.e4m3x2 wide, %1;\n"
      "mul.rn.f16x2 scaled, wide, %2;\n"
      "cvt.rn.satfinite.e4m3x2.f16x2 %0, scaled;\n}"
      : "=h"(result)
      : "h"(pair), "r"(power));
  return result;
}
__device__ __forceinline__ std::uint32_t scale_e4m3_word(std::uint32_t word, std::uint32_t power) {
  const std::uint32_t low = scale_e4m3_pair(static_cast<std::uint16_t>(word), power);
  const std::uint32_t high = scale_e4m3_pair(static_cast<std::uint16_t>(word >> 16), power);
  return low | high << 16;
}

/// Where a pool row comes from and stands.
struct PoolRow {
  int source_rank;
  int token;
  int slot;
  std::int64_t block;
  int row;  ///< in the block
};

template <KernelShape S>
__device__ __forceinline__ PoolRow locate_row(const Context& c, int expert, int row) {
  const KernelParams& p = c.params;
  const std::int64_t first_block = c.in_shared<std::int64_t>(p.shared.first_block)[expert];
  const std::int64_t block = first_block + row / S.tokens;
  if (expert >= p.experts_per_rank) {
    return {p.rank, row, p.top_k + expert - p.experts_per_rank, block, row % S.tokens};
  }
  const std::uint32_t* counts = c.in_shared<std::uint32_t>(p.shared.counts);
  const auto count = [&](int r) { return counts[r * p.experts_per_rank + expert]; };
  const Turn turn = p.ranks == 1 ? Turn{0, row} : turn_of_row(count, p.ranks, row);
  const std::uint32_t* lists = c.region<std::uint32_t>(GpuRegion::source_list);
  const std::uint32_t route =
      __ldcg(&lists[(std::int64_t{expert} * p.ranks + turn.rank) * p.max_tokens + turn.position]);
  return {static_cast<int>(turn.rank), static_cast<int>(route / p.top_k),
          static_cast<int>(route % p.top_k), block, row % S.tokens};
}

/// The route's weight: the sum over all slots that name its expert, in slot order; 1 for a shared
/// expert. Whole warp.
__device__ __forceinline__ float pull_weight(const Context& c, const PoolRow& at) {
  const KernelParams& p = c.params;
  if (at.slot >= p.top_k) return 1.0f;
  const int lane = threadIdx.x % 32;
  const std::int64_t list = std::int64_t{at.token} * p.top_k;
  const std::int64_t* ids =
      c.map(c.region<std::int64_t>(GpuRegion::expert_ids), at.source_rank) + list;
  const float* weights = c.map(c.region<float>(GpuRegion::expert_weights), at.source_rank) + list;
  const bool mine = lane < p.top_k;
  const long long id = mine ? ids[lane] : -1;
  const float weight = mine ? weights[lane] : 0.0f;
  const long long wanted = __shfl_sync(0xffffffffu, id, at.slot);
  std::uint32_t same = __ballot_sync(0xffffffffu, mine && id == wanted) >> at.slot;
  float sum = __shfl_sync(0xffffffffu, weight, at.slot);
  int slot = at.slot;
#pragma unroll 1
  for (same >>= 1, ++slot; same != 0; same >>= 1, ++slot) {
    const float other = __shfl_sync(0xffffffffu, weight, slot & 31);
    if (same & 1u) sum = __fadd_rn(sum, other);
  }
  return sum;
}

/// FP4 weights: rebases the row in this warp's buffer and stores it in its block tile. Whole warp.
template <KernelShape S>
__device__ __forceinline__ void store_row(const Context& c, std::uint32_t buffer,
                                          std::uint32_t scales, const PoolRow& at) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const int padded = p.k_blocks1() * kTileColumns;
  constexpr int kInterval = gemm1_interval(false);
  const int intervals = (p.hidden + kInterval - 1) / kInterval;
  std::byte* tile = c.region<std::byte>(GpuRegion::gemm1_input) +
                    at.block * S.tokens * std::int64_t{padded} + at.row * kTileColumns;
  float* out_scales = c.region<float>(GpuRegion::gemm1_input_scales) +
                      at.block * intervals * S.tokens + scale_position(at.row);
  // Not unrolled, here and below: the dispatch warps have few registers.
#pragma unroll 1
  for (int i = 0; i < intervals; ++i) {
    const int column = i * kInterval + lane * 16;
    const bool inside = column < p.hidden;
    uint4 v = inside ? ptx::load_shared_16(buffer + column) : uint4{0, 0, 0, 0};
    const std::uint32_t scale = inside ? ptx::load_shared_byte(scales + column / kScaleGroup) : 0;
    const bool half = ((v.x | v.y | v.z | v.w) & 0x7f7f7f7fu) != 0;
    const std::uint32_t halves = __ballot_sync(0xffffffffu, half);
    const bool nonzero = (halves >> (lane & 30) & 3u) != 0;
    // Plus one, so that 0 says that all values are zero.
    const std::uint32_t largest = __reduce_max_sync(0xffffffffu, nonzero ? scale + 1 : 0);
    const std::uint32_t exponent = largest == 0 ? kUe8m0One : largest - 1;
    if (nonzero && exponent != scale) {
      const std::uint32_t power = half2_power(exponent - scale);
      v.x = scale_e4m3_word(v.x, power);
      v.y = scale_e4m3_word(v.y, power);
      v.z = scale_e4m3_word(v.z, power);
      v.w = scale_e4m3_word(v.w, power);
    }
    if (column < padded) {
      const int piece = (lane % 8) ^ (at.row % 8);
      *reinterpret_cast<uint4*>(tile + std::int64_t{column / kTileColumns} * S.token_bytes() +
                                piece * 16) = v;
    }
    if (lane == 0) {
      out_scales[i * S.tokens] = ue8m0_to_float(static_cast<std::uint8_t>(exponent));
    }
  }
}

/// FP8 weights: stores the row as it is. Whole warp.
template <KernelShape S>
__device__ __forceinline__ void store_row_unchanged(const Context& c, std::uint32_t buffer,
                                                    std::uint32_t scales, const PoolRow& at) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const int padded = p.k_blocks1() * kTileColumns;
  std::byte* tile = c.region<std::byte>(GpuRegion::gemm1_input) +
                    at.block * S.tokens * std::int64_t{padded} + at.row * kTileColumns;
  float* out_scales = c.region<float>(GpuRegion::gemm1_input_scales) +
                      at.block * p.k_blocks1() * S.tokens + scale_position(at.row);
#pragma unroll 1
  for (int column = lane * 16; column < padded; column += 512) {
    const uint4 v = column < p.hidden ? ptx::load_shared_16(buffer + column) : uint4{0, 0, 0, 0};
    const int piece = (lane % 8) ^ (at.row % 8);
    *reinterpret_cast<uint4*>(tile + std::int64_t{column / kTileColumns} * S.token_bytes() +
                              piece * 16) = v;
  }
#pragma unroll 1
  for (int k = lane; k < p.k_blocks1(); k += 32) {
    out_scales[k * S.tokens] = ptx::load_shared_f32(scales + k * 4);
  }
}

/// The scales of a token's row come to shared memory: UE8M0 bytes, with FP8 weights f32. Whole
/// warp.
template <KernelShape S>
__device__ __forceinline__ void pull_scales(const Context& c, std::uint32_t to, int rank,
                                            std::int64_t token) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const std::byte* all = c.map(c.region<std::byte>(GpuRegion::x_scales), rank);
  if constexpr (S.fp8) {
    const float* row = reinterpret_cast<const float*>(all) + token * p.k_blocks1();
#pragma unroll 1
    for (int k = lane; k < p.k_blocks1(); k += 32) ptx::store_shared_f32(to + k * 4, row[k]);
  } else {
    const int groups = p.hidden / kScaleGroup;
    const auto* row = reinterpret_cast<const std::uint8_t*>(all) + token * groups;
#pragma unroll 1
    for (int g = lane; g < groups; g += 32) ptx::store_shared_byte(to + g, row[g]);
  }
}

/// One row: from its rank to the pool, then its block's arrival count. Whole warp.
template <KernelShape S>
__device__ __forceinline__ void pull_row(const Context& c, int warp, std::uint32_t phase,
                                         const PoolRow& at) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const std::uint32_t buffer = c.shared + p.shared.dispatch + warp * p.shared.dispatch_bytes;
  const std::uint32_t scales = buffer + p.shared.dispatch_scales;
  const std::uint32_t barrier = c.shared + offsetof(SharedFront, dispatch_full) + warp * 8;
  const std::int64_t token = at.token;
  if (lane == 0) {
    const std::byte* row = c.map(c.region<std::byte>(GpuRegion::x), at.source_rank);
    ptx::barrier_arrive_expect(barrier, p.hidden);
    ptx::bulk_load(buffer, row + token * p.hidden, p.hidden, barrier);
  }
  pull_scales<S>(c, scales, at.source_rank, token);
  const float weight = pull_weight(c, at);
  if (lane == 0) {
    std::byte* combine = c.map(c.region<std::byte>(GpuRegion::combine), at.source_rank);
    RowTarget* target = c.region<RowTarget>(GpuRegion::row_target) + at.block * S.tokens + at.row;
    *target = {reinterpret_cast<std::uint64_t>(
                   combine + (std::int64_t{at.slot} * p.max_tokens + token) * p.hidden * 2),
               weight, 0};
  }
  __syncwarp();
  while (!ptx::barrier_try_wait(barrier, phase)) {
  }
  if constexpr (S.fp8) {
    store_row_unchanged<S>(c, buffer, scales, at);
  } else {
    store_row<S>(c, buffer, scales, at);
  }
  ptx::fence_async_proxy();
  __syncwarp();
  if (lane == 0) {
    ptx::add_release_gpu(
        c.region<std::uint32_t>(GpuRegion::block_arrival, c.call().bank) + at.block, 1u);
  }
}

/// Rows in pool order, dealt to the dispatch warps of the grid one by one.
template <KernelShape S>
__device__ __forceinline__ void dispatch_role(const Context& c, int warp) {
  const KernelParams& p = c.params;
  const std::int32_t* first_row = c.in_shared<std::int32_t>(p.shared.first_row);
  const int rows = first_row[p.pool_experts()];
  int expert = 0;
  std::uint32_t phase = 0;
#pragma unroll 1
  for (int row = block_index() + warp * static_cast<int>(gridDim.x); row < rows;
       row += static_cast<int>(gridDim.x) * kDispatchWarps) {
    while (first_row[expert + 1] <= row) ++expert;
    pull_row<S>(c, warp, phase, locate_row<S>(c, expert, row - first_row[expert]));
    phase ^= 1;
    if (c.left()) return;
  }
}

}  // namespace megamoe::sm90
