// The instructions that the MQA logits add to those of sm90/ptx: wgmma with both operands in shared
// memory, tensor copies, and conversions between E4M3, f16 and f32.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/memory.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace megamoe::mqa::ptx {

using namespace megamoe::sm90::ptx;

/// Waits until the phase with this parity is over. One statement, as in sm90/ptx/barrier.cuh.
__device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Starts the copy of a box of a tensor of two or three dimensions; it completes on `barrier`.
/// Coordinates outside the tensor give the map's fill, and count as bytes.
__device__ __forceinline__ void tensor_load(std::uint32_t to, const CUtensorMap& map, int x, int y,
                                            std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void tensor_load(std::uint32_t to, const CUtensorMap& map, int x, int y,
                                            int z, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Descriptor of rows of kBytes (32, 64 or 128) with the swizzle of that width, groups of eight
/// rows one after another. `address` is a multiple of 1024; the next k step is 2 further.
template <int kBytes>
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  constexpr std::uint64_t kGroupStride = std::uint64_t{kBytes * 8 >> 4} << 32;
  constexpr std::uint64_t kSwizzle = std::uint64_t{kBytes == 128 ? 1 : kBytes == 64 ? 2 : 3} << 62;
  constexpr std::uint64_t kUnusedLeading = std::uint64_t{1} << 16;
  return ((address & 0x3FFFFu) >> 4) | kUnusedLeading | kGroupStride | kSwizzle;
}

/// d = a * b, or d += a * b when `accumulate`: 64 rows of a, 128 rows of b, 32 of the inner
/// dimension. d[4 j + 2 h + e] is a's row lane / 4 + 8 h (of the warp's 16) and b's row
/// 8 j + 2 (lane % 4) + e.
__device__ __forceinline__ void wgmma_64x128(float (&d)[64], std::uint64_t a, std::uint64_t b,
                                             int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 "
      "}, %64, %65, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

/// 2 max(value, 0), exactly; NaN stays NaN. An addition, since those have twice the throughput of a
/// maximum.
__device__ __forceinline__ float twice_relu(float value) {
  return value + fabsf(value);
}
/// max(value, 0) of two values, rounded to f16: `low` in the lower half.
__device__ __forceinline__ std::uint32_t relu_to_f16x2(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
__device__ __forceinline__ std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
  std::uint32_t result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
__device__ __forceinline__ std::uint32_t add_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ std::uint32_t multiply_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ std::uint32_t to_f16x2(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
__device__ __forceinline__ float2 to_floats(std::uint32_t f16x2) {
  float2 result;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
      : "=f"(result.x), "=f"(result.y)
      : "r"(f16x2));
  return result;
}
/// Two E4M3 values, exactly; and back, to nearest.
__device__ __forceinline__ std::uint32_t e4m3x2_to_f16x2(std::uint16_t bytes) {
  std::uint32_t result;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(result) : "h"(bytes));
  return result;
}
__device__ __forceinline__ std::uint16_t f16x2_to_e4m3x2(std::uint32_t values) {
  std::uint16_t result;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(result) : "r"(values));
  return result;
}

__device__ __forceinline__ void store_shared_16(std::uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

}  // namespace megamoe::mqa::ptx
