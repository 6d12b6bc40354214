// The main loop of a math warpgroup: one slab of 64 weight rows times the tokens of a block, over
// all of the inner dimension.
//
// Weights go from FP4 in shared memory to E4M3 in registers, where wgmma takes them; the next k
// block's are decoded while the tensor cores work on this one. The tensor cores accumulate in place
// over an interval; then the partial sums, times the token's scale, are added to f32 sums.
#pragma once

#include "sm90/context.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace megamoe::sm90 {

__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high,
                                                       std::uint32_t selector) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

/// The fragment of one slab and 128 columns: sixteen registers, four for each k step.
/// The eight magnitudes of E2M1 as E4M3 bytes fill two registers; adding the scale step to the
/// exponents of the seven nonzero ones multiplies them all; then a permute looks four values up.
__device__ __forceinline__ void load_fragment(std::uint32_t weights, std::uint32_t factors,
                                              std::uint32_t (&a)[16]) {
  const uint4 first = ptx::load_shared_16(weights);
  const uint4 second = ptx::load_shared_16(weights + kSlabBytes / 2);
  const uint2 steps = ptx::load_shared_8(factors);
  const std::uint32_t words[8] = {first.x,  first.y,  first.z,  first.w,
                                  second.x, second.y, second.z, second.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t step = permute_bytes(half == 0 ? steps.x : steps.y, 0, 0x4440u + k);
      // 0, .5, 1, 1.5 and 2, 3, 4, 6 times 2^-5: exponent fields from 1 on.
      const std::uint32_t low = 0x14100800u + step * 0x08080800u;
      const std::uint32_t high = 0x24201C18u + step * 0x08080808u;
      const std::uint32_t word = words[k * 2 + half];
      const std::uint32_t selectors = word & 0x77777777u;
      a[k * 4 + half] = permute_bytes(low, high, selectors) | (word & 0x80808080u);
      a[k * 4 + 2 + half] = permute_bytes(low, high, selectors >> 16) | ((word << 4) & 0x80808080u);
    }
  }
}

/// Keeps the compiler from moving accesses of these registers across: wgmma works on them.
template <int kCount>
__device__ __forceinline__ void pin(float* values) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
__device__ __forceinline__ void pin(std::uint32_t (&values)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

/// 128 columns: four k steps, one group.
template <int kTokens>
__device__ __forceinline__ void multiply(float* part, std::uint32_t (&a)[16], std::uint32_t tokens,
                                         bool accumulate) {
  pin<kTokens / 2>(part);
  pin(a);
  ptx::wgmma_fence();
  const std::uint64_t b = ptx::token_descriptor(tokens);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    ptx::wgmma<kTokens>(part, a + 4 * k, b + 2 * k, accumulate || k > 0);
  }
  ptx::wgmma_commit();
}

/// Waits for the last group of wgmma; then sum = fma(part, scale of the token, sum). The first
/// scales are on their way before the wait, the others two reads ahead of their use.
template <int kTokens>
__device__ __forceinline__ void promote(float* sum, float* part, std::uint32_t scales) {
  constexpr int kReads = kTokens / 16;
  uint4 ahead[2];
  ahead[0] = ptx::load_shared_16(scales);
  if (kReads > 1) ahead[1] = ptx::load_shared_16(scales + 64);
  ptx::wgmma_wait<0>();
  pin<kTokens / 2>(part);
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
    // Tokens 16 r + 2 pair, that + 1, and the same eight further on: see scale_position().
    const uint4 bits = ahead[r % 2];
    if (r + 2 < kReads) ahead[r % 2] = ptx::load_shared_16(scales + (r + 2) * 64);
    const float scale[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                            __uint_as_float(bits.z), __uint_as_float(bits.w)};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[8 * r + i] = __fmaf_rn(part[8 * r + i], scale[i / 4 * 2 + i % 2], sum[8 * r + i]);
    }
  }
}

/// One warp is done with a stage.
__device__ __forceinline__ void release_stage(const Context& c, int stage) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::barrier_arrive(c.empty(stage));
}

/// This thread's addresses in stage 0; kept through a task, since computing them again in each step
/// costs more than the registers.
struct SlabAddresses {
  std::uint32_t weights;  ///< its first 16 bytes
  std::uint32_t steps;    ///< its eight scale steps
  std::uint32_t scales;   ///< of its first four tokens
};
template <KernelShape S>
__device__ __forceinline__ SlabAddresses slab_addresses(const Context& c) {
  const int thread = thread_index() % kWarpgroup;
  const int group = thread_index() / kWarpgroup;
  const std::uint32_t stage = c.shared + c.params.shared.weights;
  const std::uint32_t tile = stage + group / 2 * kWeightTileBytes;
  return {tile + group % 2 * kSlabBytes + thread * 16,
          tile + 2 * kSlabBytes + group % 2 * kSlabScaleBytes + thread / 4 * 8,
          stage + S.weight_bytes() + thread % 4 * 16};
}

/// Decodes the weights of the stage at `place` once it is full, and moves on.
template <KernelShape S>
__device__ __forceinline__ void fetch_fragment(const Context& c, const SlabAddresses& at,
                                               PipelinePlace& place, std::uint32_t (&a)[16]) {
  wait_or_leave(c, c.full(place.stage), place.phase);
  const std::uint32_t offset = place.stage * S.weight_stage_bytes();
  load_fragment(at.weights + offset, at.steps + offset, a);
  place.advance(c.params.shared.stages);
}

template <KernelShape S>
__device__ __forceinline__ std::uint32_t stage_tokens(const Context& c, int stage) {
  return c.shared + c.params.shared.tokens + stage * S.token_bytes();
}

/// One slab, all k blocks; `kInterval` k blocks share a scale. Four k blocks a round: what is first
/// and last in an interval is then known to the compiler.
template <KernelShape S, int kInterval>
__device__ __forceinline__ void multiply_slab(const Context& c, PipelinePlace& place, int k_blocks,
                                              float (&sum)[S.tokens / 2]) {
  float part[S.tokens / 2];
  std::uint32_t a[2][16];
#pragma unroll
  for (int i = 0; i < S.tokens / 2; ++i) sum[i] = 0.0f;
  int stage = place.stage;
  const SlabAddresses at = slab_addresses<S>(c);
  fetch_fragment<S>(c, at, place, a[0]);
  const auto step = [&](int k, std::uint32_t(&now)[16], std::uint32_t(&next)[16]) {
    multiply<S.tokens>(part, now, stage_tokens<S>(c, stage), k % kInterval != 0);
    const int following = place.stage;
    if (k + 1 < k_blocks) fetch_fragment<S>(c, at, place, next);
    if (k % kInterval == kInterval - 1 || k + 1 == k_blocks) {
      promote<S.tokens>(sum, part, at.scales + stage * S.weight_stage_bytes());
    } else {
      ptx::wgmma_wait<0>();
      pin<S.tokens / 2>(part);
    }
    release_stage(c, stage);
    stage = following;
  };
#pragma unroll 1
  for (int k = 0; k < k_blocks; k += 2) {
    step(k, a[0], a[1]);
    if (k + 1 < k_blocks) step(k + 1, a[1], a[0]);
  }
}

}  // namespace megamoe::sm90
