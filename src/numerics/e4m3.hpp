// E4M3, the finite one: 1 sign, 4 exponent (bias 7), 3 mantissa bits; largest 448; no infinity;
// 0x7F and 0xFF are NaN.
#pragma once

#include <cstdint>

#include "numerics/float_bits.hpp"

namespace megamoe {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr std::uint8_t kE4m3MaxByte = 0x7E;
inline constexpr std::uint8_t kE4m3NaN = 0x7F;

/// Exact.
constexpr float e4m3_to_float(std::uint8_t byte) {
  const std::uint32_t sign = (byte & 0x80u) << 24;
  const std::uint32_t magnitude = byte & 0x7Fu;
  if (magnitude == kE4m3NaN) return f32_from_bits(kF32NaNBits);
  // Below the least normal, 2^-6, the mantissa counts steps of 2^-9.
  if (magnitude < 0x08u) {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
    return f32_from_bits(sign | f32_bits(subnormal));
  }
  constexpr std::uint32_t kRebias = 127 - 7;
  return f32_from_bits(sign | ((magnitude << 20) + (kRebias << 23)));
}

/// Round to nearest, ties to even; beyond 448, infinity included, +-448; every NaN gives 0x7F.
/// These are the bits of
/// __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3) and of cvt.rn.satfinite.e4m3x2.f32.
constexpr std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return kE4m3NaN;
  const std::uint32_t sign = (f32_bits(value) & kF32SignBit) >> 24;
  if (magnitude >= f32_bits(kE4m3Max)) return static_cast<std::uint8_t>(sign | kE4m3MaxByte);
  if (magnitude >= f32_bits(0x1p-6f)) {
    constexpr std::uint32_t kRebias = 127 - 7;
    const std::uint32_t rounded = shift_right_nearest_even(magnitude, 20) - (kRebias << 3);
    return static_cast<std::uint8_t>(sign | rounded);
  }
  // f32 values in [2^14, 2^15) are 2^-9 apart: the addition rounds to the steps of a subnormal
  // E4M3.
  const std::uint32_t steps = f32_bits(f32_from_bits(magnitude) + 0x1p14f) - f32_bits(0x1p14f);
  return static_cast<std::uint8_t>(sign | steps);
}

}  // namespace megamoe
