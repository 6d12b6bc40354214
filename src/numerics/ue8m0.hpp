// UE8M0: a byte b that means 2^(b - 127); 255 is NaN. The exponent field of an f32, with byte 0 one
// step further down.
#pragma once

#include <cstdint>

#include "numerics/float_bits.hpp"

namespace megamoe {

inline constexpr std::uint8_t kUe8m0One = 127;
inline constexpr std::uint8_t kUe8m0Max = 254;
inline constexpr std::uint8_t kUe8m0NaN = 255;

/// Exact; byte 0 is 2^-127, a subnormal f32.
constexpr float ue8m0_to_float(std::uint8_t byte) {
  if (byte == kUe8m0NaN) return f32_from_bits(kF32NaNBits);
  if (byte == 0) return 0x1p-127f;
  return f32_from_bits(static_cast<std::uint32_t>(byte) << 23);
}

/// 2^(127 - byte), the exact reciprocal: multiplying by it divides by the scale. A normal f32 for
/// bytes up to 253, and for all that the quantisers of block_scale.hpp produce. 255 gives NaN.
constexpr float ue8m0_reciprocal(std::uint8_t byte) {
  if (byte == kUe8m0NaN) return f32_from_bits(kF32NaNBits);
  if (byte == kUe8m0Max) return 0x1p-127f;
  return f32_from_bits((254u - byte) << 23);
}

/// The least byte whose value is at least |value|, at most 254 (infinity too); zero gives 0, NaN
/// gives 255. These are the bits of __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf)
/// for values that are not negative.
constexpr std::uint8_t float_to_ue8m0_up(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return kUe8m0NaN;
  if (magnitude > f32_bits(0x1p127f)) return kUe8m0Max;
  if (magnitude <= f32_bits(0x1p-127f)) return 0;
  // The exponent field, plus one if a mantissa bit is set. A subnormal above 2^-127 has field 0 and
  // comes to 1.
  return static_cast<std::uint8_t>((magnitude + 0x007F'FFFFu) >> 23);
}

}  // namespace megamoe
