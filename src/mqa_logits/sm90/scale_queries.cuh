// f16 weights: q and the weights of a row block are scaled by powers of two such that nothing
// overflows f16, whatever the keys are.
//
// A dot product with a key is at most 448 times the head's sum of |q|: the head is scaled by the
// power of two that brings this bound just below kLargestDot. Then the row's weights, each times
// what its head lost, are scaled such that their magnitudes sum to at most 1.
#pragma once

#include "mqa_logits/sm90/params.hpp"
#include "mqa_logits/sm90/ptx.cuh"

namespace megamoe::mqa {

inline constexpr int kPrepareBarrier = 1;

/// Below 65,504 by 6 %: rounding q to the scaled E4M3 adds at most 128 * 2^-10 * 448, and rounding
/// the sum of |q| to f16 hides less than 1 %.
inline constexpr float kLargestDot = 61440.0f;

/// The least t with 2^t > value; value is positive, finite and normal.
__device__ __forceinline__ int exponent_above(float value) {
  return static_cast<int>(__float_as_uint(value) >> 23) - 126;
}
/// 2^exponent, for -126 <= exponent <= 127.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// sum += the magnitudes of four E4M3 values, two in each half.
__device__ __forceinline__ std::uint32_t add_magnitudes(std::uint32_t sum, std::uint32_t word) {
  const std::uint32_t magnitudes = word & 0x7F7F7F7Fu;
  sum = ptx::add_f16x2(sum, ptx::e4m3x2_to_f16x2(static_cast<std::uint16_t>(magnitudes)));
  return ptx::add_f16x2(sum, ptx::e4m3x2_to_f16x2(static_cast<std::uint16_t>(magnitudes >> 16)));
}

/// Four E4M3 values times a power of two in both halves of `factor`: exact in f16, then to nearest.
__device__ __forceinline__ std::uint32_t scale_word(std::uint32_t word, std::uint32_t factor) {
  const std::uint32_t low =
      ptx::multiply_f16x2(ptx::e4m3x2_to_f16x2(static_cast<std::uint16_t>(word)), factor);
  const std::uint32_t high =
      ptx::multiply_f16x2(ptx::e4m3x2_to_f16x2(static_cast<std::uint16_t>(word >> 16)), factor);
  return ptx::f16x2_to_e4m3x2(low) | std::uint32_t{ptx::f16x2_to_e4m3x2(high)} << 16;
}

/// Scales one head in shared memory; the power of two that it lost is the result. The swizzle only
/// permutes the row's 16-byte pieces; threads begin at different ones to keep off each other's
/// banks. The sums are rounded to f16: by less than 1 %.
template <KernelShape S>
__device__ __forceinline__ int scale_head(std::uint32_t row, int thread) {
  constexpr int kPieces = S.head_dim / 16;
  uint4 pieces[kPieces];
  std::uint32_t sums[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    pieces[i] = ptx::load_shared_16(row + (i + thread) % kPieces * 16);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    sums[0] = add_magnitudes(sums[0], pieces[i].x);
    sums[1] = add_magnitudes(sums[1], pieces[i].y);
    sums[2] = add_magnitudes(sums[2], pieces[i].z);
    sums[3] = add_magnitudes(sums[3], pieces[i].w);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = ptx::to_floats(sums[i]);
    sum += pair.x + pair.y;
  }
  if (sum == 0) return 0;
  // NaN keeps its head finite in the bound.
  if (isnan(sum)) sum = S.head_dim * 448.0f;
  int lost = exponent_above(sum * (448.0f / kLargestDot));
  // 2^-lost is a normal f16.
  if (lost < -14) lost = -14;
  const std::uint32_t half = static_cast<std::uint32_t>(15 - lost) << 10;
  const std::uint32_t factor = half | half << 16;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint4 v = pieces[i];
    ptx::store_shared_16(row + (i + thread) % kPieces * 16,
                         make_uint4(scale_word(v.x, factor), scale_word(v.y, factor),
                                    scale_word(v.z, factor), scale_word(v.w, factor)));
  }
  return lost;
}

/// The weights of one row to f16, and the factor that undoes their scale. All lanes of a warp.
template <KernelShape S>
__device__ __forceinline__ void scale_weights(SharedMemory<S>& shared, int slot, int row,
                                              int lane) {
  const float* from = shared.scaled_weights + row * S.heads;
  float sum = 0;
  for (int h = lane; h < S.heads; h += 32) sum += fabsf(from[h]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  // Weights that are all zero, or not all finite, stay as they are.
  const bool some = sum > 0 && isfinite(sum);
  const int exponent = some ? exponent_above(sum) : 0;
  const float scale = power_of_two(-exponent);
  auto* to = reinterpret_cast<std::uint16_t*>(shared.weights[slot]) + row * S.heads;
  for (int h = lane; h < S.heads; h += 32) {
    to[h] = static_cast<std::uint16_t>(ptx::to_f16x2(from[h] * scale, 0.0f));
  }
  if (lane == 0) shared.segments[slot].factors[row] = power_of_two(exponent);
}

/// Rows that are not there: what stands in their columns of q may be of an earlier block.
template <KernelShape S>
__device__ __forceinline__ void clear_weights(SharedMemory<S>& shared, int slot, int row,
                                              int lane) {
  auto* to = reinterpret_cast<std::uint16_t*>(shared.weights[slot]) + row * S.heads;
  for (int h = lane; h < S.heads; h += 32) to[h] = 0;
  if (lane == 0) shared.segments[slot].factors[row] = 1;
}

/// The warps that prepare. Returns when the slot's q, which is on its way to the phase of `q_raw`,
/// and weights are what the math needs, for this thread's part of them.
template <KernelShape S>
__device__ __forceinline__ void scale_queries(const Params& p, SharedMemory<S>& shared, int slot,
                                              int first_row, int rows, int thread,
                                              std::uint32_t phase) {
  constexpr int kCount = kBlockColumns / S.prepare_threads();
  const auto* weights = static_cast<const std::uint16_t*>(p.weights);
  const std::uint32_t q = ptx::shared_address(shared.q[slot]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int column = thread + i * S.prepare_threads();
    const int row = column / S.heads;
    const int head = column % S.heads;
    const bool there = row < rows && head < p.heads;
    const std::uint32_t bits = there ? weights[std::int64_t{first_row + row} * p.heads + head] : 0u;
    shared.scaled_weights[column] = ptx::to_floats(bits).x;
  }
  ptx::wait(ptx::shared_address(&shared.q_raw[slot]), phase);
#pragma unroll 1
  for (int i = 0; i < kCount; ++i) {
    const int column = thread + i * S.prepare_threads();
    if (column / S.heads >= rows) break;
    const int lost = scale_head<S>(q + column * S.head_dim, thread);
    shared.scaled_weights[column] *= power_of_two(lost);
  }
  ptx::named_barrier(kPrepareBarrier, S.prepare_threads());
  for (int row = thread / 32; row < S.block_rows(); row += S.prepare_warps()) {
    if (row < rows) {
      scale_weights<S>(shared, slot, row, thread % 32);
    } else {
      clear_weights<S>(shared, slot, row, thread % 32);
    }
  }
  // The next block's weights go where these were.
  ptx::named_barrier(kPrepareBarrier, S.prepare_threads());
}

}  // namespace megamoe::mqa
