// The math warpgroups. Keys are the rows of wgmma, query rows times heads its columns, so that the
// heads of a logit lie along the registers of four lanes. A step is 64 keys times 128 columns:
// wgmma, then the heads are reduced to logits, while the tensor cores work for other warpgroups.
#pragma once

#include "mqa_logits/sm90/loaders.cuh"

namespace megamoe::mqa {

__device__ __forceinline__ void pin(float (&values)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// Starts one step: 64 keys times a group of columns.
template <KernelShape S>
__device__ __forceinline__ void multiply(float (&dots)[64], std::uint32_t keys,
                                         std::uint32_t queries) {
  pin(dots);
  ptx::wgmma_fence();
  const std::uint64_t a = ptx::descriptor<S.head_dim>(keys);
  const std::uint64_t b = ptx::descriptor<S.head_dim>(queries);
#pragma unroll
  for (int k = 0; k < S.head_dim / 32; ++k) ptx::wgmma_64x128(dots, a + 2 * k, b + 2 * k, k > 0);
  ptx::wgmma_commit();
}

/// A thread's weights of one group, those of columns 8 j + 2 (lane % 4) and + 1 for each j. f16:
/// both in a word. f32: the first half in registers; for all of them there are too few, and the
/// shared memory, which feeds wgmma, has time for half.
template <KernelShape S>
struct Weights {
  static constexpr int kPairs = S.f16() ? 16 : 8;
  static constexpr int kPairBytes = S.f16() ? 4 : 8;
  std::uint32_t words[16];
  std::uint32_t from;

  __device__ __forceinline__ void load(const SharedMemory<S>& shared, int slot, int group) {
    from = ptx::shared_address(shared.weights[slot]) +
           (group * kGroupColumns / 2 + threadIdx.x % 4) * kPairBytes;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if constexpr (S.f16()) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[j]) : "r"(from + j * 16) : "memory");
      } else {
        const float2 both = ptx::load_shared_f32x2(from + j * 32);
        words[2 * j] = __float_as_uint(both.x);
        words[2 * j + 1] = __float_as_uint(both.y);
      }
    }
  }

  __device__ __forceinline__ std::uint32_t f16_pair(int j) const {
    return words[j];
  }
  __device__ __forceinline__ float2 f32_pair(int j) const {
    if (j >= kPairs) return ptx::load_shared_f32x2(from + j * 32);
    return {__uint_as_float(words[2 * j % 16]), __uint_as_float(words[(2 * j + 1) % 16])};
  }
};

/// What a thread has left of its 64 dot products: sums over its own heads, for every row of the
/// group and for keys lane / 4 and lane / 4 + 8.
template <KernelShape S>
__device__ __forceinline__ void reduce_heads(const float (&dots)[64], const Weights<S>& weights,
                                             float (&sums)[S.group_rows()][2]) {
  constexpr int kOctets = S.heads / 8;
#pragma unroll
  for (int row = 0; row < S.group_rows(); ++row) {
    if constexpr (S.f16()) {
      std::uint32_t pairs[2] = {0, 0};
#pragma unroll
      for (int j = row * kOctets; j < (row + 1) * kOctets; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t dot =
              ptx::relu_to_f16x2(dots[4 * j + 2 * half], dots[4 * j + 2 * half + 1]);
          pairs[half] = ptx::fma_f16x2(dot, weights.f16_pair(j), pairs[half]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 pair = ptx::to_floats(pairs[half]);
        sums[row][half] = pair.x + pair.y;
      }
    } else {
      sums[row][0] = sums[row][1] = 0.0f;
#pragma unroll
      for (int j = row * kOctets; j < (row + 1) * kOctets; ++j) {
        const float2 weight = weights.f32_pair(j);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[row][i / 2] = __fmaf_rn(ptx::twice_relu(dots[4 * j + i]),
                                       i % 2 == 0 ? weight.x : weight.y, sums[row][i / 2]);
        }
      }
    }
  }
}

/// Adds the sums of four lanes. Each ends with the key of its lowest bit and every other row.
template <KernelShape S>
__device__ __forceinline__ void reduce_lanes(const float (&sums)[S.group_rows()][2],
                                             float (&totals)[S.group_rows() / 2]) {
  const bool high_key = threadIdx.x & 1;
  const bool odd_row = threadIdx.x & 2;
  float rows[S.group_rows()];
#pragma unroll
  for (int row = 0; row < S.group_rows(); ++row) {
    const float given = high_key ? sums[row][0] : sums[row][1];
    const float kept = high_key ? sums[row][1] : sums[row][0];
    rows[row] = kept + __shfl_xor_sync(~0u, given, 1);
  }
#pragma unroll
  for (int pair = 0; pair < S.group_rows() / 2; ++pair) {
    const float given = odd_row ? rows[2 * pair] : rows[2 * pair + 1];
    const float kept = odd_row ? rows[2 * pair + 1] : rows[2 * pair];
    totals[pair] = kept + __shfl_xor_sync(~0u, given, 2);
  }
}

/// The range of a row, and what its factor is.
struct RowResult {
  int begin;
  int length;
  float factor;  ///< f16 weights
};

/// A thread's place in the results of a group: every other row of it.
template <KernelShape S>
struct Results {
  static constexpr int kRows = S.group_rows() / 2;
  /// More do not fit the registers, and are read again for each tile.
  static constexpr bool kInRegisters = kRows == 1;
  std::byte* place;  ///< its first row's column 0
  const Segment* segment;
  int first;  ///< of its rows, in the segment
  RowResult rows[kInRegisters ? kRows : 1];

  __device__ __forceinline__ RowResult read(int row) const {
    const int at = first + 2 * row;
    return {segment->begins[at], segment->ends[at] - segment->begins[at],
            S.f16() ? segment->factors[at] : 1.0f};
  }

  __device__ __forceinline__ void load(const Params& p, const Segment& from, int group) {
    segment = &from;
    first = group * S.group_rows() + (threadIdx.x & 2) / 2;
    const std::int64_t at = (from.first_row + first) * p.row_stride;
    place = static_cast<std::byte*>(p.logits) + at * logit_bytes(p.format);
    if constexpr (kInRegisters) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) rows[r] = read(r);
    }
  }

  __device__ __forceinline__ void store(const Params& p, const float (&totals)[kRows], int key,
                                        float scale) const {
    const bool f32 = p.format == MqaLogitFormat::f32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const RowResult row = kInRegisters ? rows[kInRegisters ? r : 0] : read(r);
      const bool inside =
          static_cast<unsigned>(key - row.begin) < static_cast<unsigned>(row.length);
      const float logit = (S.f16() ? totals[r] * row.factor : totals[r]) * scale;
      const std::int64_t at = 2 * r * p.row_stride + key;
      if (inside && f32) reinterpret_cast<float*>(place)[at] = logit;
      if (inside && !f32) {
        reinterpret_cast<__nv_bfloat16*>(place)[at] = __float2bfloat16_rn(logit);
      }
    }
  }
};

/// One warp is done with what `barrier` guards.
__device__ __forceinline__ void release(std::uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::barrier_arrive(ptx::shared_address(&barrier));
}

/// A warpgroup's half of the keys of each tile, and its group of the columns. Told by a shuffle, so
/// that the compiler sees that warps do not diverge.
struct MathPlace {
  int half;
  int group;
  int key;  ///< this thread's, of the tile

  __device__ __forceinline__ static MathPlace here() {
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    const int lane = threadIdx.x % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    return {warpgroup / 2, warpgroup % 2,
            warpgroup / 2 * kHalfKeys + warp * 16 + lane / 4 + lane % 2 * 8};
  }
};

/// 64 keys times 128 columns, to logits. `queries`: the group's columns in shared memory.
template <KernelShape S>
__device__ __forceinline__ void run_step(const Params& p, SharedMemory<S>& shared,
                                         const MathPlace& here, int stage, std::uint32_t queries,
                                         const Weights<S>& weights, const Results<S>& results,
                                         int key) {
  float dots[64];
  multiply<S>(dots, ptx::shared_address(&shared.kv[stage][here.half * S.half_bytes()]), queries);
  const float scale = shared.scales[stage][here.key];
  ptx::wgmma_wait<0>();
  release(shared.kv_empty[stage]);
  pin(dots);
  float sums[S.group_rows()][2];
  float totals[S.group_rows() / 2];
  reduce_heads<S>(dots, weights, sums);
  reduce_lanes<S>(sums, totals);
  results.store(p, totals, key, scale);
}

/// All tiles of all segments. Where a segment has one group of columns, the two warpgroups of a
/// half take every other tile.
template <KernelShape S>
__device__ __forceinline__ void math_role(const Params& p, SharedMemory<S>& shared) {
  const MathPlace here = MathPlace::here();
  Weights<S> weights;
  Results<S> results;
  RingPlace<S.stages()> tile;
  for (RingPlace<2> place;; ++place.count) {
    const int slot = place.slot();
    ptx::wait(ptx::shared_address(&shared.q_full[slot]), place.phase());
    const Segment& segment = shared.segments[slot];
    const int tiles = __shfl_sync(~0u, segment.tiles, 0);
    if (tiles == 0) return;
    const bool whole = __shfl_sync(~0u, segment.groups, 0) == 2;
    const int group = whole ? here.group : 0;
    int key = segment.first_key + here.key;
    weights.load(shared, slot, group);
    results.load(p, segment, group);
    const std::uint32_t queries = ptx::shared_address(&shared.q[slot][group * S.group_bytes()]);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t, ++tile.count, key += kStageKeys) {
      const int stage = tile.slot();
      ptx::wait(ptx::shared_address(&shared.kv_full[stage]), tile.phase());
      if (whole || t % 2 == here.group) {
        run_step<S>(p, shared, here, stage, queries, weights, results, key);
      } else {
        release(shared.kv_empty[stage]);
      }
    }
    release(shared.q_empty[slot]);
  }
}

}  // namespace megamoe::mqa
