// E2M1: a nibble of 1 sign, 2 exponent (bias 1) and 1 mantissa bit: 0, .5, 1, 1.5, 2, 3, 4, 6; no
// infinity, no NaN. Two values share a byte, the one with the even index in the low nibble.
#pragma once

#include <cstdint>

#include "numerics/float_bits.hpp"

namespace megamoe {

inline constexpr float kE2m1Max = 6.0f;
inline constexpr std::uint8_t kE2m1MaxNibble = 0x7;

constexpr std::uint8_t e2m1_low(std::uint8_t byte) {
  return byte & 0x0Fu;
}
constexpr std::uint8_t e2m1_high(std::uint8_t byte) {
  return static_cast<std::uint8_t>(byte >> 4);
}

/// `low` and `high` are nibbles.
constexpr std::uint8_t e2m1_pack(std::uint8_t low, std::uint8_t high) {
  return static_cast<std::uint8_t>(low | (high << 4));
}

/// Exact. Only the low four bits of `nibble` count.
constexpr float e2m1_to_float(std::uint8_t nibble) {
  const std::uint32_t sign = (nibble & 0x8u) << 28;
  const std::uint32_t magnitude = nibble & 0x7u;
  // Below the least normal, 1, the mantissa counts halves.
  if (magnitude < 2) {
    return f32_from_bits(sign | f32_bits(static_cast<float>(magnitude) * 0.5f));
  }
  constexpr std::uint32_t kRebias = 127 - 1;
  return f32_from_bits(sign | ((magnitude << 22) + (kRebias << 23)));
}

/// Round to nearest, ties to even; beyond 6, infinity included, +-6; a NaN of either sign gives +6,
/// since there is none in the format. These are the bits of __nv_cvt_float_to_fp4(value, __NV_E2M1,
/// cudaRoundNearest).
constexpr std::uint8_t float_to_e2m1(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return kE2m1MaxNibble;
  const std::uint32_t sign = (f32_bits(value) & kF32SignBit) >> 28;
  if (magnitude >= f32_bits(kE2m1Max)) return static_cast<std::uint8_t>(sign | kE2m1MaxNibble);
  if (magnitude >= f32_bits(1.0f)) {
    constexpr std::uint32_t kRebias = 127 - 1;
    const std::uint32_t rounded = shift_right_nearest_even(magnitude, 22) - (kRebias << 1);
    return static_cast<std::uint8_t>(sign | rounded);
  }
  // f32 values in [2^22, 2^23) are 0.5 apart: the addition rounds to the steps of a subnormal E2M1.
  const std::uint32_t steps = f32_bits(f32_from_bits(magnitude) + 0x1p22f) - f32_bits(0x1p22f);
  return static_cast<std::uint8_t>(sign | steps);
}

}  // namespace megamoe
