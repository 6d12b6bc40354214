// What the math warps do with the sums of a tile: activation and quantisation after GEMM 1, the
// push to the source rank after GEMM 2.
#pragma once

#include "numerics/block_scale.hpp"
#include "sm90/slab.cuh"

namespace megamoe::sm90 {

/// Named barriers: 1 is all math warps, 2 + g those of warpgroup g.
inline constexpr int kMathBarrier = 1;
inline constexpr int kGroupBarrier = 2;

/// Where a thread's sums stand: rows lane / 4 and + 8 of its warp's 16, tokens 8 j + 2 (lane % 4) +
/// e.
struct ThreadPlace {
  int group;
  int warp;  ///< in the group
  int lane;
  int row;   ///< lane / 4
  int pair;  ///< lane % 4

  __device__ static ThreadPlace here() {
    const int index = thread_index();
    const int thread = index % kWarpgroup;
    return {index / kWarpgroup, thread / 32, thread % 32, thread % 32 / 4, thread % 4};
  }
};

/// One tile of 64 x math_groups rows.
struct TilePlace {
  int block;
  int part;
  int valid;                ///< tokens of the block
  std::int64_t factor_row;  ///< this thread's first packed row, over all experts
};

/// Row targets of the block that warpgroup `group` works on.
template <KernelShape S>
__device__ __forceinline__ std::uint32_t targets_of(const Context& c, int group) {
  return c.shared + c.params.shared.targets + group * S.tokens * sizeof(RowTarget);
}

/// Factor of this thread's first row in its slab; the second's is 32 bytes behind.
__device__ __forceinline__ std::uint32_t factor_of(const Context& c) {
  const ThreadPlace at = ThreadPlace::here();
  return c.shared + c.params.shared.factors + (at.group * kSlabRows + at.warp * 16 + at.row) * 4;
}

/// Both rounded to bf16, by one conversion.
__device__ __forceinline__ void round_to_bf16(float& gate, float& up) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(gate, up);
  const std::uint32_t bits = *reinterpret_cast<const std::uint32_t*>(&pair);
  gate = __uint_as_float(bits << 16);
  up = __uint_as_float(bits & 0xffff0000u);
}

/// gate / (1 + e^-(slope gate)) * (up + offset); see ActivationRule. exp and the division are the
/// approximate ones: some ulp, far below the rounding to E4M3 that follows. Where e^-gate is
/// infinite or its reciprocal underflows, the division gives the limit, 0.
__device__ __forceinline__ float activate_fast(const ActivationRule& rule, float gate, float up) {
  const float silu = __fdividef(gate, 1.0f + __expf(-(rule.slope * gate)));
  return silu * (up + rule.up_offset);
}

/// The sums of a GEMM-1 tile become activations times the route's weight: value 2 j + e is token
/// 8 j + 2 pair + e of the thread's one intermediate.
template <KernelShape S>
__device__ __forceinline__ void activate_tile(const Context& c, const TilePlace& tile,
                                              const float* sum, float* values) {
  const KernelParams& p = c.params;
  const ThreadPlace at = ThreadPlace::here();
  const std::uint32_t targets = targets_of<S>(c, at.group);
  const float gate_factor = ptx::load_shared_f32(factor_of(c));
  const float up_factor = ptx::load_shared_f32(factor_of(c) + 32);
  const float gate_bias = p.w1.bias != nullptr ? __ldg(p.w1.bias + tile.factor_row) : 0.0f;
  const float up_bias = p.w1.bias != nullptr ? __ldg(p.w1.bias + tile.factor_row + 8) : 0.0f;
  const bool clamped = p.activation.limit < f32_from_bits(kF32InfinityBits);
#pragma unroll
  for (int j = 0; j < S.tokens / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float gate = __fmaf_rn(sum[4 * j + e], gate_factor, gate_bias);
      float up = __fmaf_rn(sum[4 * j + 2 + e], up_factor, up_bias);
      round_to_bf16(gate, up);
      if (clamped) {
        gate = clamp_above(gate, p.activation.limit);
        up = clamp_magnitude(up, p.activation.limit);
      }
      const std::uint32_t weight = targets + (8 * j + 2 * at.pair + e) * sizeof(RowTarget) + 8;
      values[2 * j + e] =
          __fmul_rn(activate_fast(p.activation, gate, up), ptx::load_shared_f32x2(weight).x);
    }
  }
}

/// Adds this thread's magnitudes to the maxima of its tokens: a reduction over the eight lanes that
/// share tokens, in which every lane keeps a part, then one atomic for each token and warp.
template <KernelShape S>
__device__ __forceinline__ void add_maxima(const Context& c, const float* values) {
  constexpr int kValues = S.tokens / 4;
  const ThreadPlace at = ThreadPlace::here();
  std::uint32_t m[kValues];
#pragma unroll
  for (int v = 0; v < kValues; ++v) m[v] = magnitude_bits(values[v]);
  int first = 0;
  int count = kValues;
#pragma unroll
  for (int bit = 16; bit >= 4; bit /= 2) {
    const bool upper = (at.lane & bit) != 0;
    if (count % 2 == 0) {
      count /= 2;
      first += upper ? count : 0;
#pragma unroll
      for (int v = 0; v < kValues / 2; ++v) {
        if (v >= count) continue;
        const std::uint32_t mine = upper ? m[v + count] : m[v];
        const std::uint32_t theirs = upper ? m[v] : m[v + count];
        m[v] = max(mine, __shfl_xor_sync(0xffffffffu, theirs, bit));
      }
    } else {
#pragma unroll
      for (int v = 0; v < kValues / 2; ++v) {
        if (v < count) m[v] = max(m[v], __shfl_xor_sync(0xffffffffu, m[v], bit));
      }
    }
  }
  std::uint32_t* maxima = c.in_shared<std::uint32_t>(c.params.shared.maxima);
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    if (v >= count) continue;
    const int value = first + v;
    atomicMax(&maxima[value / 2 * 8 + 2 * at.pair + value % 2], m[v]);
  }
}

/// All math threads: the maxima of the group are complete; turns them into scales, writes these for
/// GEMM 2, leaves 1 / scale in shared memory (NaN for a group that holds NaN or infinity), clears.
template <KernelShape S>
__device__ __forceinline__ void finish_maxima(const Context& c, const TilePlace& task) {
  const KernelParams& p = c.params;
  ptx::named_barrier(kMathBarrier, S.math_threads());
  std::uint32_t* maxima = c.in_shared<std::uint32_t>(p.shared.maxima);
  float* reciprocals = c.in_shared<float>(p.shared.reciprocals);
  float* scales = c.region<float>(GpuRegion::gemm2_input_scales) +
                  (std::int64_t{task.block} * p.groups + task.part) * S.tokens;
  const bool live = !c.left();
  for (int t = thread_index(); t < S.tokens; t += S.math_threads()) {
    const std::uint32_t largest = maxima[t];
    maxima[t] = 0;
    const bool finite = largest < kF32InfinityBits;
    const std::uint8_t scale = finite ? e4m3_group_scale(f32_from_bits(largest)) : kUe8m0One;
    reciprocals[t] = finite ? ue8m0_reciprocal(scale) : f32_from_bits(kF32NaNBits);
    if (live) scales[scale_position(t)] = ue8m0_to_float(scale);
  }
  ptx::named_barrier(kMathBarrier, S.math_threads());
}

/// Two f32 to two E4M3 bytes, `low` in the low byte.
__device__ __forceinline__ std::uint32_t to_e4m3_pair(float low, float high) {
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Four lanes that hold four tokens of one intermediate each turn to four intermediates of one
/// token.
__device__ __forceinline__ std::uint32_t transpose_bytes(std::uint32_t word, int row) {
  const std::uint32_t other = __shfl_xor_sync(0xffffffffu, word, 4);
  word = permute_bytes(word, other, row & 1 ? 0x3715u : 0x6240u);
  const std::uint32_t next = __shfl_xor_sync(0xffffffffu, word, 8);
  return permute_bytes(word, next, row & 2 ? 0x3276u : 0x5410u);
}

/// Quantises a tile's activations and stores them as GEMM 2 reads them. `slab`: 0 to 3, which 32 of
/// the group's 128 intermediates.
template <KernelShape S>
__device__ __forceinline__ void store_activations(const Context& c, const TilePlace& task, int slab,
                                                  const float* values) {
  const KernelParams& p = c.params;
  const ThreadPlace at = ThreadPlace::here();
  const float* reciprocals = c.in_shared<float>(p.shared.reciprocals);
  std::byte* tile = c.region<std::byte>(GpuRegion::gemm2_input) +
                    (std::int64_t{task.block} * p.groups + task.part) * S.token_bytes();
  const int column = slab * 32 + at.warp * 8 + at.row / 4 * 4;
  const bool live = !c.left();
#pragma unroll
  for (int j = 0; j < S.tokens / 8; j += 2) {
    std::uint32_t word = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 r = *reinterpret_cast<const float2*>(reciprocals + 8 * (j + h) + 2 * at.pair);
      const float low = __fmul_rn(values[2 * (j + h)], r.x);
      const float high = __fmul_rn(values[2 * (j + h) + 1], r.y);
      word |= to_e4m3_pair(low, high) << (16 * h);
    }
    word = transpose_bytes(word, at.row);
    const int token = 8 * (j + at.row % 4 / 2) + 2 * at.pair + at.row % 2;
    if (token < task.valid && live) {
      const int piece = (column / 16) ^ (token % 8);
      *reinterpret_cast<std::uint32_t*>(tile + token * kTileColumns + piece * 16 + column % 16) =
          word;
    }
  }
}

/// This warp's part of the block's group is stored: one of groups x math_warps() arrivals.
__device__ __forceinline__ void release_readiness(const Context& c, const TilePlace& task) {
  ptx::fence_async_proxy();
  __syncwarp();
  if (thread_index() % 32 == 0 && !c.left()) {
    ptx::add_release_gpu(
        c.region<std::uint32_t>(GpuRegion::block_readiness, c.call().bank) + task.block, 1u);
  }
}

/// Where the activations of a group's first tile wait until the second's are there: in memory of
/// the thread's own, in pieces of 16 bytes that a warp writes side by side.
template <KernelShape S>
__device__ __forceinline__ float4* scratch_of(const Context& c) {
  return c.params.scratch + std::int64_t{block_index()} * (S.tokens / 16) * S.math_threads() +
         thread_index();
}
template <KernelShape S>
__device__ __forceinline__ void keep_values(const Context& c, const float* values) {
  float4* to = scratch_of<S>(c);
#pragma unroll
  for (int i = 0; i < S.tokens / 16; ++i) {
    to[i * S.math_threads()] = {values[4 * i], values[4 * i + 1], values[4 * i + 2],
                                values[4 * i + 3]};
  }
}
template <KernelShape S>
__device__ __forceinline__ void fetch_values(const Context& c, float* values) {
  const float4* from = scratch_of<S>(c);
#pragma unroll
  for (int i = 0; i < S.tokens / 16; ++i) {
    const float4 v = from[i * S.math_threads()];
    values[4 * i] = v.x;
    values[4 * i + 1] = v.y;
    values[4 * i + 2] = v.z;
    values[4 * i + 3] = v.w;
  }
}

/// The sums of a GEMM-2 tile times the rows' factors, plus weight * bias where there is one.
template <KernelShape S>
__device__ __forceinline__ void finish_sums(const Context& c, const TilePlace& tile,
                                            std::uint32_t targets, float* sum) {
  const KernelParams& p = c.params;
  const int pair = ThreadPlace::here().pair;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float factor = ptx::load_shared_f32(factor_of(c) + 32 * h);
#pragma unroll
    for (int j = 0; j < S.tokens / 8; ++j) {
      sum[4 * j + 2 * h] = __fmul_rn(sum[4 * j + 2 * h], factor);
      sum[4 * j + 2 * h + 1] = __fmul_rn(sum[4 * j + 2 * h + 1], factor);
    }
  }
  if (p.w2.bias == nullptr) return;
  const float bias[2] = {__ldg(p.w2.bias + tile.factor_row),
                         __ldg(p.w2.bias + tile.factor_row + 8)};
#pragma unroll
  for (int j = 0; j < S.tokens / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const std::uint32_t target = targets + (8 * j + 2 * pair + e) * sizeof(RowTarget);
      const float weight = ptx::load_shared_f32x2(target + 8).x;
      sum[4 * j + e] = __fadd_rn(sum[4 * j + e], __fmul_rn(weight, bias[0]));
      sum[4 * j + 2 + e] = __fadd_rn(sum[4 * j + 2 + e], __fmul_rn(weight, bias[1]));
    }
  }
}

__device__ __forceinline__ std::uint32_t to_bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// GEMM-2 results of a tile, rounded to bf16, to the rows of the source ranks: sixteen features of
/// sixteen tokens at a time are transposed in 512 bytes of this warp's own, and leave as 32
/// contiguous bytes per token.
template <KernelShape S>
__device__ __forceinline__ void push_tile(const Context& c, const TilePlace& tile, float* sum) {
  const KernelParams& p = c.params;
  const ThreadPlace at = ThreadPlace::here();
  const std::uint32_t targets = targets_of<S>(c, at.group);
  finish_sums<S>(c, tile, targets, sum);
  // Matrix q holds features 8 (q % 2), tokens 8 (q / 2); transposed, its rows are tokens. The two
  // 16-byte halves of a token's 32 bytes change places with (token / 4) % 2: no two rows of a
  // matrix meet in a bank.
  const std::uint32_t staging = c.shared + p.shared.transpose + (at.group * 4 + at.warp) * 1024;
  const int written = at.lane / 16 * 8 + at.lane % 8;
  const std::uint32_t write = staging + written * 32 + ((at.lane / 8 % 2) ^ (written / 4 % 2)) * 16;
  const int token = at.lane / 2;
  const std::uint32_t read = staging + token * 32 + ((at.lane % 2) ^ (token / 4 % 2)) * 16;
  const int feature = tile.part * S.rows() + at.group * kSlabRows + at.warp * 16 + at.lane % 2 * 8;
  const bool live = !c.left() && feature < p.hidden;
#pragma unroll
  for (int j = 0; j < S.tokens / 8; j += 2) {
    // Two buffers take turns, so one barrier per round is enough.
    const std::uint32_t buffer = j / 2 % 2 * 512;
    const float* s = sum + 4 * j;
    ptx::store_matrices_transposed(write + buffer, to_bf16_pair(s[0], s[1]),
                                   to_bf16_pair(s[2], s[3]), to_bf16_pair(s[4], s[5]),
                                   to_bf16_pair(s[6], s[7]));
    const int in_block = 8 * j + token;
    const uint2 address = ptx::load_shared_8(targets + in_block * sizeof(RowTarget));
    __syncwarp();
    const uint4 row = ptx::load_shared_16(read + buffer);
    if (in_block < tile.valid && live) {
      const std::uint64_t result = std::uint64_t{address.y} << 32 | address.x;
      reinterpret_cast<uint4*>(result)[feature / 8] = row;
    }
  }
}

}  // namespace megamoe::sm90
