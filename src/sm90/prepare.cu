#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include "numerics/block_scale.hpp"
#include "sm90/prepare.hpp"

namespace megamoe::sm90 {
namespace {

constexpr int kThreads = 256;
// A thread converts eight values, one 16-byte load; four neighbours share a group of 32.
constexpr int kValues = 8;
constexpr int kThreadsPerGroup = 32 / kValues;
// Enough to keep the memory busy; the rest of the rows come in further turns.
constexpr std::int64_t kMaxBlocks = 132 * 8;

/// Eight values as E4M3 bytes by the chip's own conversion, which rounds as float_to_e4m3() does.
__device__ uint2 to_e4m3(const float (&values)[kValues], float reciprocal) {
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kValues; i += 2) {
    const float2 pair{values[i] * reciprocal, values[i + 1] * reciprocal};
    const std::uint32_t bytes = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
    words[i / 4] |= bytes << (i % 4 * 8);
  }
  return {words[0], words[1]};
}

__global__ void quantise_x(QuantiseX task) {
  const std::int64_t tokens =
      task.word != nullptr ? min(std::int64_t{*task.word}, task.tokens) : task.tokens;
  const std::int64_t pieces = tokens * task.hidden / kValues;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  // hidden is a multiple of 32, so the four threads of a group take part or leave together.
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pieces;
       i += stride) {
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(task.x) + i);
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    float values[kValues];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      values[2 * w] = f32_from_bits(words[w] << 16);
      values[2 * w + 1] = f32_from_bits(words[w] & 0xffff0000u);
    }
    std::uint32_t largest = group_magnitude_bits(values, kValues);
    const unsigned group = 0xfu << (threadIdx.x % 32 / kThreadsPerGroup * kThreadsPerGroup);
#pragma unroll
    for (int distance = 1; distance < kThreadsPerGroup; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(group, largest, distance));
    }
    const bool finite = largest < kF32InfinityBits;
    const std::uint8_t scale =
        finite ? e4m3_group_scale(f32_from_bits(largest)) : std::uint8_t{kUe8m0One};
    const uint2 bytes =
        finite ? to_e4m3(values, ue8m0_reciprocal(scale)) : uint2{0x7f7f7f7fu, 0x7f7f7f7fu};
    reinterpret_cast<uint2*>(task.values)[i] = bytes;
    if (i % kThreadsPerGroup == 0) {
      task.scales[i / kThreadsPerGroup] = static_cast<std::byte>(scale);
    }
  }
}

/// f32 scales: sixteen threads share a group of 128.
__global__ void quantise_x_f32(QuantiseX task) {
  constexpr int kGroupThreads = 128 / kValues;
  const std::int64_t tokens =
      task.word != nullptr ? min(std::int64_t{*task.word}, task.tokens) : task.tokens;
  const std::int64_t groups = (task.hidden + 127) / 128;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads / kGroupThreads;
  const int place = threadIdx.x % kGroupThreads;
  const unsigned members = 0xffffu << (threadIdx.x % 32 / kGroupThreads * kGroupThreads);
  for (std::int64_t g = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kGroupThreads;
       g < tokens * groups; g += stride) {
    const std::int64_t token = g / groups;
    const std::int64_t column = g % groups * 128 + place * kValues;
    const bool inside = column < task.hidden;  // the last group may be short
    const std::int64_t at = (token * task.hidden + column) / kValues;
    const uint4 raw = inside ? __ldg(reinterpret_cast<const uint4*>(task.x) + at) : uint4{};
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    float values[kValues];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      values[2 * w] = f32_from_bits(words[w] << 16);
      values[2 * w + 1] = f32_from_bits(words[w] & 0xffff0000u);
    }
    std::uint32_t largest = group_magnitude_bits(values, kValues);
#pragma unroll
    for (int distance = 1; distance < kGroupThreads; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(members, largest, distance));
    }
    const bool finite = largest < kF32InfinityBits;
    const float scale = finite ? e4m3_f32_scale(f32_from_bits(largest)) : 1.0f;
    if (inside) {
      reinterpret_cast<uint2*>(task.values)[at] =
          finite ? to_e4m3(values, 1.0f / scale) : uint2{0x7f7f7f7fu, 0x7f7f7f7fu};
    }
    if (place == 0) reinterpret_cast<float*>(task.scales)[g] = scale;
  }
}

__global__ void store_tokens(std::int32_t* word, std::int32_t tokens) {
  *word = tokens;
}

__global__ void clamp_tokens(std::int32_t* word, const std::int32_t* from, std::int32_t most) {
  *word = max(0, min(*from, most));
}

}  // namespace

void load_preparations() {
  cudaFuncAttributes attributes;
  for (const void* kernel :
       {reinterpret_cast<const void*>(quantise_x), reinterpret_cast<const void*>(quantise_x_f32),
        reinterpret_cast<const void*>(store_tokens), reinterpret_cast<const void*>(clamp_tokens)}) {
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return;  // told by the launch
  }
}

void launch_quantise(const QuantiseX& task, void* stream) {
  const std::int64_t threads = task.tokens * task.hidden / kValues;
  const std::int64_t blocks = (threads + kThreads - 1) / kThreads;
  if (blocks == 0) return;
  const auto grid = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  const auto kernel = task.f32_scales ? quantise_x_f32 : quantise_x;
  kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(task);
}

void launch_store_tokens(std::int32_t* word, std::int64_t tokens, void* stream) {
  store_tokens<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word,
                                                               static_cast<std::int32_t>(tokens));
}

void launch_clamp_tokens(std::int32_t* word, const std::int32_t* from, std::int64_t most,
                         void* stream) {
  clamp_tokens<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word, from,
                                                               static_cast<std::int32_t>(most));
}

}  // namespace megamoe::sm90
