// Barrier B and combine: the math warps, after their last task; in the split K2 and K3.
#pragma once

#include "sm90/roles/epilogues.cuh"

namespace megamoe::sm90 {

/// All pushes of this block are done; the last block of the rank tells all ranks. Math threads;
/// true in thread 0 of that block.
template <KernelShape S>
__device__ __forceinline__ bool arrive_at_b(const Context& c) {
  ptx::named_barrier(kMathBarrier, S.math_threads());
  if (threadIdx.x != 0 || c.left()) return false;
  __threadfence_system();
  GridCounters* grid = c.region<GridCounters>(GpuRegion::grid, c.call().bank);
  if (ptx::fetch_add_acquire_release_sys(&grid->finished, 1u) + 1 != gridDim.x) return false;
  arrive_at_ranks(c, BarrierId::b);
  return true;
}

/// Barrier B; waits for all ranks. Math threads. False: the block has left.
template <KernelShape S>
__device__ __forceinline__ bool barrier_b(const Context& c) {
  arrive_at_b<S>(c);
  if (static_cast<int>(threadIdx.x) < c.params.ranks) {
    wait_for_rank(c, {WaitSignal::barrier_b, threadIdx.x}, BarrierId::b,
                  static_cast<int>(threadIdx.x));
  }
  ptx::named_barrier(kMathBarrier, S.math_threads());
  return !c.left();
}

/// The end of K2: barrier B, for which one thread waits; K3 is a later launch.
template <KernelShape S>
__device__ __forceinline__ void finish_pushes(const Context& c) {
  if (!arrive_at_b<S>(c)) return;
  for (int r = 0; r < c.params.ranks; ++r) {
    if (!wait_for_rank(c, {WaitSignal::barrier_b, static_cast<std::uint32_t>(r)}, BarrierId::b, r))
      return;
  }
}

/// Slots of a token that hold a result, as bits: its routes and the shared experts; `bad` if an id
/// is beyond the experts.
struct TokenSlots {
  std::uint32_t routes;
  bool bad;
};
__device__ __forceinline__ TokenSlots token_slots(const Context& c, std::int64_t token) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const std::int64_t* ids = c.region<std::int64_t>(GpuRegion::expert_ids) + token * p.top_k;
  const long long id = lane < p.top_k ? __ldg(reinterpret_cast<const long long*>(ids) + lane) : -1;
  bool route = id >= 0 && id < p.experts;
  for (int earlier = 0; earlier + 1 < p.top_k; ++earlier) {
    const long long other = __shfl_sync(0xffffffffu, id, earlier);
    if (earlier < lane && other == id) route = false;
  }
  // Lane K + s stands for shared expert s.
  if (lane >= p.top_k && lane < p.top_k + p.shared_experts) route = true;
  return {__ballot_sync(0xffffffffu, route), __any_sync(0xffffffffu, id >= p.experts) != 0};
}

__device__ __forceinline__ void add_bf16(float (&sum)[8], const uint4& v) {
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] = __fadd_rn(sum[2 * i], __uint_as_float(words[i] << 16));
    sum[2 * i + 1] = __fadd_rn(sum[2 * i + 1], __uint_as_float(words[i] & 0xffff0000u));
  }
}

__device__ __forceinline__ uint4 to_bf16(const float (&sum)[8]) {
  return {to_bf16_pair(sum[0], sum[1]), to_bf16_pair(sum[2], sum[3]), to_bf16_pair(sum[4], sum[5]),
          to_bf16_pair(sum[6], sum[7])};
}

/// Twice eight features of one token, `second` 16-byte pieces apart: the slots' results in slot
/// order, 2 kSlots loads in flight.
template <int kSlots>
__device__ __forceinline__ void combine_features(const uint4* first, std::int64_t slot_stride,
                                                 std::uint32_t routes, int second, uint4* y) {
  float sum[2][8] = {};
  while (routes != 0) {
    uint4 v[kSlots][2];
    std::uint32_t rest = routes;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const uint4* slot = first + (__ffs(static_cast<int>(rest)) - 1) * slot_stride;
      if (rest != 0) {
        v[i][0] = ptx::load_streamed(slot);
        v[i][1] = ptx::load_streamed(slot + second);
      }
      rest &= rest - 1;
    }
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (routes != 0) {
        add_bf16(sum[0], v[i][0]);
        add_bf16(sum[1], v[i][1]);
      }
      routes &= routes - 1;
    }
  }
  y[0] = to_bf16(sum[0]);
  y[second] = to_bf16(sum[1]);
}

/// y of this rank's tokens: pieces of 512 features, dealt to the warps of the grid. `warps`: of
/// this block that take part; `warp`: which this is. NaN everywhere once the block has left.
template <int kSlots>
__device__ __forceinline__ void combine(const Context& c, int warp, int warps) {
  const KernelParams& p = c.params;
  const int lane = threadIdx.x % 32;
  const int pieces = (p.hidden + 511) / 512;
  const std::int64_t units = std::int64_t{c.call().tokens} * pieces;
  const std::int64_t stride = std::int64_t{gridDim.x} * warps;
  const std::byte* results = c.region<std::byte>(GpuRegion::combine);
  const std::int64_t slot_stride = std::int64_t{p.max_tokens} * p.hidden / 8;
  const bool left = c.left();
  constexpr std::uint32_t kNaNPair = 0x7fff7fffu;
  std::int64_t unit = std::int64_t{warp} * gridDim.x + block_index();
  if (unit >= units) return;
  TokenSlots next = token_slots(c, unit / pieces);
  for (; unit < units; unit += stride) {
    const std::int64_t token = unit / pieces;
    const TokenSlots slots = next;
    // The ids of the next unit arrive while this one's results are on their way.
    if (unit + stride < units) next = token_slots(c, (unit + stride) / pieces);
    const int feature = static_cast<int>(unit % pieces) * 512 + lane * 8;
    if (feature >= p.hidden) continue;
    // A lane whose second eight are beyond the row does its first eight twice.
    const int second = feature + 256 < p.hidden ? 32 : 0;
    const std::int64_t at = (token * p.hidden + feature) / 8;
    uint4* y = reinterpret_cast<uint4*>(p.y) + at;
    if (slots.bad || left) {
      y[0] = y[second] = {kNaNPair, kNaNPair, kNaNPair, kNaNPair};
      continue;
    }
    combine_features<kSlots>(reinterpret_cast<const uint4*>(results) + at, slot_stride,
                             slots.routes, second, y);
  }
}

}  // namespace megamoe::sm90
