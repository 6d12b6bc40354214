// The conversions of CUDA's headers, host side, as functions of plain integers and floats.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

namespace megamoe::test::cuda {

inline float from_halfraw(__half_raw raw) {
  return __half2float(__half(raw));
}

inline std::uint16_t float_to_bf16(float value) {
  return __nv_bfloat16_raw(__float2bfloat16_rn(value)).x;
}
inline float bf16_to_float(std::uint16_t bits) {
  __nv_bfloat16_raw raw;
  raw.x = bits;
  return __bfloat162float(__nv_bfloat16(raw));
}

inline std::uint16_t float_to_f16(float value) {
  return __half_raw(__float2half_rn(value)).x;
}
inline float f16_to_float(std::uint16_t bits) {
  __half_raw raw;
  raw.x = bits;
  return from_halfraw(raw);
}

inline std::uint8_t float_to_e4m3(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}
inline float e4m3_to_float(std::uint8_t byte) {
  return from_halfraw(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3));
}

inline std::uint8_t float_to_e2m1(float value) {
  return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest);
}
inline float e2m1_to_float(std::uint8_t nibble) {
  return from_halfraw(__nv_cvt_fp4_to_halfraw(nibble, __NV_E2M1));
}

/// For values that are not negative.
inline std::uint8_t float_to_ue8m0_up(float value) {
  return __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf);
}
inline float ue8m0_to_float(std::uint8_t byte) {
  return bf16_to_float(__nv_cvt_e8m0_to_bf16raw(byte).x);
}

}  // namespace megamoe::test::cuda
