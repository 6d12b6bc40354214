// The main loop of a math warpgroup: one slab of 64 weight rows times the tokens of a block, over
// all of the inner dimension.
//
// Weights go from shared memory to registers, where wgmma takes them, FP4 on the way to E4M3; the
// next k block's are decoded while the tensor cores work on this one. The tensor cores accumulate
// in place over an interval; then the partial sums, times the token's scale, are added to f32 sums.
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

/// What a thread reads of one slab and 128 columns: E2M1 values, and a scale step for each of its
/// two rows and four groups of 32 columns.
struct PackedFragment {
  std::uint32_t words[8];
  std::uint32_t steps[2];
};
__device__ __forceinline__ PackedFragment load_packed(std::uint32_t weights, std::uint32_t steps) {
  const uint4 first = ptx::load_shared_16(weights);
  const uint2 s = ptx::load_shared_8(steps);
  const uint4 second = ptx::load_shared_16(weights + kSlabBytes / 2);
  return {{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w}, {s.x, s.y}};
}

/// The fragment as wgmma takes it: sixteen registers, four for each k step.
/// The eight magnitudes of E2M1 as E4M3 bytes fill two registers; adding the scale step to the
/// exponents of the seven nonzero ones multiplies them all; then a permute looks four values up.
__device__ __forceinline__ void decode(const PackedFragment& packed, std::uint32_t (&a)[16]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t step = permute_bytes(packed.steps[half], 0, 0x4440u + k);
      // 0, .5, 1, 1.5 and 2, 3, 4, 6 times 2^-5: exponent fields from 1 on.
      const std::uint32_t low = 0x14100800u + step * 0x08080800u;
      const std::uint32_t high = 0x24201C18u + step * 0x08080808u;
      const std::uint32_t word = packed.words[k * 2 + half];
      const std::uint32_t selectors = word & 0x77777777u;
      a[k * 4 + half] = permute_bytes(low, high, selectors) | (word & 0x80808080u);
      a[k * 4 + 2 + half] = permute_bytes(low, high, selectors >> 16) | ((word << 4) & 0x80808080u);
    }
  }
}

/// The same of E4M3 weights: as they are.
__device__ __forceinline__ void load_fragment(std::uint32_t weights, std::uint32_t (&a)[16]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint4 v = ptx::load_shared_16(weights + k * 2048);
    a[4 * k] = v.x;
    a[4 * k + 1] = v.y;
    a[4 * k + 2] = v.z;
    a[4 * k + 3] = v.w;
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

/// 128 columns: four k steps, one group. `tokens`: low half of the descriptor.
template <int kTokens>
__device__ __forceinline__ void multiply(float* part, std::uint32_t (&a)[16], std::uint32_t tokens,
                                         bool accumulate) {
  pin<kTokens / 2>(part);
  pin(a);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    ptx::wgmma<kTokens>(part, a + 4 * k, ptx::token_descriptor(tokens + 2 * k),
                        accumulate || k > 0);
  }
  ptx::wgmma_commit();
}

/// Waits for the last group of wgmma; then sum = fma(part, scale, sum), where the scale is that of
/// the token, with FP8 weights times that of the thread's first or second row (two f32 at
/// `row_scales`). The first scales are on their way before the wait, the others four reads ahead of
/// their use.
template <int kTokens, bool kFp8>
__device__ __forceinline__ void promote(float* sum, float* part, std::uint32_t scales,
                                        std::uint32_t row_scales) {
  constexpr int kReads = kTokens / 16;
  constexpr int kAhead = kReads < 4 ? kReads : 4;
  constexpr int kEarly = kReads < 2 ? kReads : 2;
  uint4 ahead[kAhead];
#pragma unroll
  for (int r = 0; r < kEarly; ++r) ahead[r] = ptx::load_shared_16(scales + r * 64);
  float2 of_rows{1.0f, 1.0f};
  if constexpr (kFp8) of_rows = ptx::load_shared_f32x2(row_scales);
  ptx::wgmma_wait<0>();
  pin<kTokens / 2>(part);
#pragma unroll
  for (int r = kEarly; r < kAhead; ++r) ahead[r] = ptx::load_shared_16(scales + r * 64);
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
    // Tokens 16 r + 2 pair, that + 1, and the same eight further on: see scale_position().
    const uint4 bits = ahead[r % kAhead];
    const float scale[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                            __uint_as_float(bits.z), __uint_as_float(bits.w)};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float s = scale[i / 4 * 2 + i % 2];
      if constexpr (kFp8) s = __fmul_rn(s, i % 4 < 2 ? of_rows.x : of_rows.y);
      sum[8 * r + i] = __fmaf_rn(part[8 * r + i], s, sum[8 * r + i]);
    }
    if (r + kAhead < kReads) {
      ahead[r % kAhead] = ptx::load_shared_16(scales + (r + kAhead) * 64);
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
  std::uint32_t steps;    ///< FP4: its eight scale steps; FP8: the scales of its two rows
  std::uint32_t scales;   ///< of its first four tokens
};
template <KernelShape S>
__device__ __forceinline__ SlabAddresses slab_addresses(const Context& c) {
  const int thread = thread_index() % kWarpgroup;
  const int group = thread_index() / kWarpgroup;
  const std::uint32_t stage = c.shared + c.params.shared.weights;
  const std::uint32_t tile = stage + group / 2 * S.weight_tile_bytes();
  const std::uint32_t behind = tile + 2 * S.slab_bytes();
  return {tile + group % 2 * S.slab_bytes() + thread * 16,
          S.fp8 ? behind : behind + group % 2 * kSlabScaleBytes + thread / 4 * 8,
          stage + S.weight_bytes() + thread % 4 * 16};
}

/// Where in the ring of stages the main loop reads, kept up from step to step: computing it anew
/// costs the loop more than the registers.
template <KernelShape S>
struct StageCursor {
  std::int32_t stage;
  std::uint32_t phase;
  std::uint32_t weights;  ///< offset of the stage's weights
  std::uint32_t tokens;   ///< low half of the descriptor of its tokens

  __device__ __forceinline__ StageCursor(const Context& c, const PipelinePlace& place)
      : stage(place.stage),
        phase(place.phase),
        weights(place.stage * S.weight_stage_bytes()),
        tokens(ptx::descriptor_address(c.shared + c.params.shared.tokens) +
               place.stage * (S.token_bytes() / 16)) {}
  __device__ __forceinline__ void advance(const Context& c) {
    ++stage;
    weights += S.weight_stage_bytes();
    tokens += S.token_bytes() / 16;
    if (stage == c.params.shared.stages) {
      stage = 0;
      phase ^= 1;
      weights = 0;
      tokens = ptx::descriptor_address(c.shared + c.params.shared.tokens);
    }
  }
};

/// Waits for a stage, then reads its weights and decodes them.
template <KernelShape S>
__device__ __forceinline__ void fetch_fragment(const Context& c, const SlabAddresses& at,
                                               const StageCursor<S>& from, std::uint32_t (&a)[16]) {
  wait_or_leave(c, c.full(from.stage), from.phase);
  if constexpr (S.fp8) {
    load_fragment(at.weights + from.weights, a);
  } else {
    decode(load_packed(at.weights + from.weights, at.steps + from.weights), a);
  }
}

/// One slab, all k blocks; `kInterval` k blocks share a scale. The weights of the next k block are
/// decoded while the tensor cores work on this one.
template <KernelShape S, int kInterval>
__device__ __forceinline__ void multiply_slab(const Context& c, PipelinePlace& place, int k_blocks,
                                              float (&sum)[S.tokens / 2]) {
  float part[S.tokens / 2];
  std::uint32_t a[2][16];
#pragma unroll
  for (int i = 0; i < S.tokens / 2; ++i) sum[i] = 0.0f;
  const SlabAddresses at = slab_addresses<S>(c);
  StageCursor<S> now(c, place);
  fetch_fragment<S>(c, at, now, a[0]);
  const auto step = [&](int k, std::uint32_t(&current)[16], std::uint32_t(&next)[16]) {
    multiply<S.tokens>(part, current, now.tokens, k % kInterval != 0);
    StageCursor<S> after = now;
    after.advance(c);
    if (k + 1 < k_blocks) fetch_fragment<S>(c, at, after, next);
    if (k % kInterval == kInterval - 1 || k + 1 == k_blocks) {
      promote<S.tokens, S.fp8>(sum, part, at.scales + now.weights, at.steps + now.weights);
    } else {
      ptx::wgmma_wait<0>();
      pin<S.tokens / 2>(part);
    }
    release_stage(c, now.stage);
    now = after;
  };
#pragma unroll 1
  for (int k = 0; k < k_blocks; k += 2) {
    step(k, a[0], a[1]);
    if (k + 1 < k_blocks) step(k + 1, a[1], a[0]);
  }
  place = {now.stage, now.phase};
}

}  // namespace megamoe::sm90
