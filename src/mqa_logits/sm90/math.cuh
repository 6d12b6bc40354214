// The math warpgroups. Keys are the rows of wgmma, query rows times heads its columns, so that the
// heads of a logit lie along the registers of four lanes. Each warpgroup takes 64 keys of a stage
// and has two accumulators of 128 columns: while the tensor cores fill one, the warps reduce the
// other to logits.
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

/// A thread's weights of one group: f32 for columns 8 j + 2 (lane % 4) and + 1, or both in a word.
template <KernelShape S>
struct Weights {
  static constexpr int kWords = S.f16() ? 16 : 32;
  std::uint32_t words[kWords];

  __device__ __forceinline__ void load(const SharedMemory<S>& shared, int slot, int group) {
    const int lane = threadIdx.x % 4;
    if constexpr (S.f16()) {
      const std::uint32_t from =
          ptx::shared_address(shared.weights[slot]) + group * kGroupColumns * 2 + lane * 4;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[j]) : "r"(from + j * 16) : "memory");
      }
    } else {
      const std::uint32_t from =
          ptx::shared_address(shared.weights[slot]) + group * kGroupColumns * 4 + lane * 8;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const uint2 pair = ptx::load_shared_8(from + j * 32);
        words[2 * j] = pair.x;
        words[2 * j + 1] = pair.y;
      }
    }
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
          pairs[half] = ptx::fma_f16x2(dot, weights.words[j], pairs[half]);
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
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[row][i / 2] =
              __fmaf_rn(ptx::relu(dots[4 * j + i]), __uint_as_float(weights.words[2 * j + i % 2]),
                        sums[row][i / 2]);
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

/// A thread's place in the results of a group: the rows it stores, and their ranges.
template <KernelShape S>
struct Results {
  static constexpr int kRows = S.group_rows() / 2;
  std::int64_t at;  ///< value of its first row's column 0
  int begins[kRows];
  int lengths[kRows];
  float factors[kRows];

  __device__ __forceinline__ void load(const Params& p, const Segment& segment, int group) {
    const int first = group * S.group_rows() + (threadIdx.x & 2) / 2;
    at = (segment.first_row + first) * p.row_stride;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      begins[r] = segment.begins[first + 2 * r];
      lengths[r] = segment.ends[first + 2 * r] - begins[r];
      if constexpr (S.f16()) factors[r] = segment.factors[first + 2 * r];
    }
  }

  __device__ __forceinline__ void store(const Params& p, const float (&totals)[kRows], int key,
                                        float scale) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (static_cast<unsigned>(key - begins[r]) >= static_cast<unsigned>(lengths[r])) continue;
      const float logit = (S.f16() ? totals[r] * factors[r] : totals[r]) * scale;
      const std::int64_t place = at + 2 * r * p.row_stride + key;
      if (p.format == MqaLogitFormat::f32) {
        static_cast<float*>(p.logits)[place] = logit;
      } else {
        static_cast<__nv_bfloat16*>(p.logits)[place] = __float2bfloat16_rn(logit);
      }
    }
  }
};

/// One of the two accumulators, and what belongs to the step that it holds.
template <KernelShape S>
struct Step {
  float dots[64];
  Weights<S> weights;
  Results<S> results;
};

/// Reduces a finished step and stores its logits. `key` and `scale` are this thread's.
template <KernelShape S>
__device__ __forceinline__ void finish(const Params& p, Step<S>& step, int key, float scale) {
  pin(step.dots);
  float sums[S.group_rows()][2];
  float totals[S.group_rows() / 2];
  reduce_heads<S>(step.dots, step.weights, sums);
  reduce_lanes<S>(sums, totals);
  step.results.store(p, totals, key, scale);
}

/// One warp is done with what `barrier` guards.
__device__ __forceinline__ void release(std::uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::barrier_arrive(ptx::shared_address(&barrier));
}

/// Where a warpgroup is: a tile of a segment, and the ring slots of both.
template <KernelShape S>
struct Cursor {
  RingPlace<S.stages()> tile;
  RingPlace<2> segment;
  int left;    ///< tiles of the segment, with this one
  int key;     ///< this thread's in the tile
  int groups;  ///< of the segment

  __device__ __forceinline__ static int key_in_tile() {
    const int lane = threadIdx.x % 32;
    return static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + lane % 2 * 8;
  }

  /// Waits for the segment of this place and enters it. False: it is the end.
  __device__ __forceinline__ bool enter(SharedMemory<S>& shared) {
    ptx::wait(ptx::shared_address(&shared.q_full[segment.slot()]), segment.phase());
    const Segment& it = shared.segments[segment.slot()];
    left = it.tiles;
    key = it.first_key + key_in_tile();
    groups = it.groups;
    return left > 0;
  }
  __device__ __forceinline__ void wait_for_tile(SharedMemory<S>& shared) const {
    ptx::wait(ptx::shared_address(&shared.kv_full[tile.slot()]), tile.phase());
  }
  __device__ __forceinline__ void advance(int tiles) {
    tile.count += tiles;
    left -= tiles;
    key += tiles * kStageKeys;
  }
  __device__ __forceinline__ float scale(const SharedMemory<S>& shared) const {
    return shared.scales[tile.slot()][key_in_tile()];
  }
};

template <KernelShape S>
__device__ __forceinline__ void load_step(const Params& p, const SharedMemory<S>& shared,
                                          const Cursor<S>& at, int group, Step<S>& step) {
  const int slot = at.segment.slot();
  step.weights.load(shared, slot, group);
  step.results.load(p, shared.segments[slot], group);
}

template <KernelShape S>
__device__ __forceinline__ void start_step(SharedMemory<S>& shared, const Cursor<S>& at, int group,
                                           Step<S>& step) {
  // Told by a shuffle, so that the compiler sees that warps do not diverge here.
  const int half = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
  multiply<S>(step.dots, ptx::shared_address(&shared.kv[at.tile.slot()][half * S.half_bytes()]),
              ptx::shared_address(&shared.q[at.segment.slot()][group * S.group_bytes()]));
}

/// Two steps a round: both groups of a tile, or two tiles of a segment that has one group. The
/// first is reduced while the second is in the tensor cores, the second while the other warpgroup's
/// are.
template <KernelShape S>
__device__ __forceinline__ void math_role(const Params& p, SharedMemory<S>& shared) {
  Step<S> first;
  Step<S> second;
  Cursor<S> at{};
  while (at.enter(shared)) {
    load_step<S>(p, shared, at, 0, first);
    load_step<S>(p, shared, at, at.groups - 1, second);
#pragma unroll 1
    while (at.left > 0) {
      at.wait_for_tile(shared);
      start_step<S>(shared, at, 0, first);
      Cursor<S> other = at;
      const bool apart = at.groups == 1 && at.left > 1;
      if (apart) {
        other.advance(1);
        other.wait_for_tile(shared);
      }
      start_step<S>(shared, other, at.groups - 1, second);
      const float scale = at.scale(shared);
      const float other_scale = other.scale(shared);
      ptx::wgmma_wait<1>();
      finish<S>(p, first, at.key, scale);
      ptx::wgmma_wait<0>();
      if (apart) release(shared.kv_empty[at.tile.slot()]);
      release(shared.kv_empty[other.tile.slot()]);
      // One group and an odd number of tiles: the last second step repeated the first, for nothing.
      if (at.groups == 2 || apart) finish<S>(p, second, other.key, other_scale);
      at.advance(apart ? 2 : 1);
    }
    release(shared.q_empty[at.segment.slot()]);
    ++at.segment.count;
  }
}

}  // namespace megamoe::mqa
