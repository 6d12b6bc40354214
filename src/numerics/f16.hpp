// IEEE binary16.
#pragma once

#include <cstdint>

#include "numerics/float_bits.hpp"

namespace megamoe {

inline constexpr std::uint16_t kF16NaN = 0x7FFF;
inline constexpr std::uint16_t kF16Infinity = 0x7C00;

/// Exact; every NaN gives the f32 NaN 0x7FFFFFFF, as cuda_fp16.h does.
constexpr float f16_to_float(std::uint16_t value) {
  const std::uint32_t sign = (value & 0x8000u) << 16;
  const std::uint32_t magnitude = value & 0x7FFFu;
  if (magnitude > kF16Infinity) return f32_from_bits(kF32NaNBits);
  if (magnitude == kF16Infinity) return f32_from_bits(sign | kF32InfinityBits);
  // Below the least normal, 2^-14, the mantissa counts steps of 2^-24.
  if (magnitude < 0x0400u) {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return f32_from_bits(sign | f32_bits(subnormal));
  }
  constexpr std::uint32_t kRebias = 127 - 15;
  return f32_from_bits(sign | ((magnitude << 13) + (kRebias << 23)));
}

/// Round to nearest, ties to even. From 65520 on infinity; every NaN gives 0x7FFF, as cuda_fp16.h
/// does.
constexpr std::uint16_t float_to_f16(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return kF16NaN;
  const std::uint32_t sign = (f32_bits(value) & kF32SignBit) >> 16;
  if (magnitude >= f32_bits(65520.0f)) return static_cast<std::uint16_t>(sign | kF16Infinity);
  if (magnitude >= f32_bits(0x1p-14f)) {
    constexpr std::uint32_t kRebias = 127 - 15;
    const std::uint32_t rounded = shift_right_nearest_even(magnitude, 13) - (kRebias << 10);
    return static_cast<std::uint16_t>(sign | rounded);
  }
  // f32 values in [0.5, 1) are 2^-24 apart: the addition rounds to the steps of a subnormal f16.
  const std::uint32_t steps = f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f);
  return static_cast<std::uint16_t>(sign | steps);
}

}  // namespace megamoe
