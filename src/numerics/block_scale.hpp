// Groups of values that share a scale. Every quantiser sees NaN and infinity through the bits of
// the magnitudes: a maximum of floats would drop NaN, a saturating conversion would hide infinity.
#pragma once

#include <cstdint>

#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/float_bits.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {

/// The largest magnitude_bits of the group: from kF32InfinityBits on, the group holds an infinity
/// or a NaN.
constexpr std::uint32_t group_magnitude_bits(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = magnitude_bits(values[i]);
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

/// The least byte b >= 0 with `largest` * 2^-(b - 127) <= (1 + fraction / 2^23) * 2^exponent, for
/// the bits of a finite magnitude: its exponent less `exponent`, plus one if its mantissa exceeds
/// `fraction`. No division.
constexpr std::uint8_t power_of_two_scale(std::uint32_t largest, std::int32_t exponent,
                                          std::uint32_t fraction) {
  if (largest == 0) return kUe8m0One;
  const std::int32_t field = static_cast<std::int32_t>(largest >> 23);
  const std::int32_t above = (largest & 0x007F'FFFFu) > fraction ? 1 : 0;
  const std::int32_t byte = field - exponent + above;
  // Byte 0 fits whatever is smaller, subnormal magnitudes (field 0) included.
  return static_cast<std::uint8_t>(byte < 0 ? 0 : byte);
}

/// The UE8M0 scale of a group whose largest magnitude is the finite `amax`: the least power of two
/// (not below 2^-127) with amax / scale <= 448 = 1.75 * 2^8. At most 247; 127 for 0.
constexpr std::uint8_t e4m3_group_scale(float amax) {
  return power_of_two_scale(magnitude_bits(amax), 8, 0x0060'0000u);
}

/// The UE8M0 scale of a group whose largest magnitude is the finite `amax`: the least power of two
/// (not below 2^-127) with amax / scale <= 6 = 1.5 * 2^2. At most 253; 127 for 0.
constexpr std::uint8_t e2m1_group_scale(float amax) {
  return power_of_two_scale(magnitude_bits(amax), 2, 0x0040'0000u);
}

/// The f32 scale, a multiplier, of a group or block whose largest magnitude is the finite `amax`:
/// amax / 448, and 1 for 0. Never below 2^-126, so that the scale is a normal number and its
/// reciprocal finite: groups whose amax is below 448 * 2^-126 use less of the range of E4M3.
constexpr float e4m3_f32_scale(float amax) {
  if (amax == 0.0f) return 1.0f;
  const float scale = amax / kE4m3Max;
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

/// One group to E4M3 with a UE8M0 scale: value ~ bytes[i] * 2^(scale - 127). All zeros give zeros
/// of their signs and scale 127. A NaN or infinity anywhere gives `count` bytes 0x7F and scale 127.
constexpr void quantise_e4m3_group(const float* values, std::int64_t count, std::uint8_t* bytes,
                                   std::uint8_t& scale) {
  const std::uint32_t largest = group_magnitude_bits(values, count);
  if (largest >= kF32InfinityBits) {
    scale = kUe8m0One;
    for (std::int64_t i = 0; i < count; ++i) bytes[i] = kE4m3NaN;
    return;
  }
  scale = e4m3_group_scale(f32_from_bits(largest));
  const float reciprocal = ue8m0_reciprocal(scale);
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = float_to_e4m3(values[i] * reciprocal);
}

/// One group to E4M3 with an f32 scale: scale = e4m3_f32_scale(amax), bytes[i] =
/// float_to_e4m3(values[i] * (1 / scale)). All zeros give zeros of their signs and scale 1. A NaN
/// or infinity anywhere gives `count` bytes 0x7F and scale 1.
constexpr void quantise_e4m3_group_f32(const float* values, std::int64_t count, std::uint8_t* bytes,
                                       float& scale) {
  const std::uint32_t largest = group_magnitude_bits(values, count);
  if (largest >= kF32InfinityBits) {
    scale = 1.0f;
    for (std::int64_t i = 0; i < count; ++i) bytes[i] = kE4m3NaN;
    return;
  }
  scale = e4m3_f32_scale(f32_from_bits(largest));
  const float reciprocal = 1.0f / scale;
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = float_to_e4m3(values[i] * reciprocal);
}

/// One group to E2M1 with a UE8M0 scale, ceil(count / 2) bytes, the even index in the low nibble,
/// the high nibble of a last odd value 0. All zeros give zeros of their signs and scale 127. E2M1
/// has no NaN: a NaN or infinity anywhere gives zero nibbles and the scale 255, which is NaN.
constexpr void quantise_e2m1_group(const float* values, std::int64_t count,
                                   std::uint8_t* nibbles_packed, std::uint8_t& scale) {
  const std::uint32_t largest = group_magnitude_bits(values, count);
  const bool finite = largest < kF32InfinityBits;
  scale = finite ? e2m1_group_scale(f32_from_bits(largest)) : kUe8m0NaN;
  const float reciprocal = finite ? ue8m0_reciprocal(scale) : 0.0f;
  for (std::int64_t i = 0; i < count; i += 2) {
    std::uint8_t low = 0;
    std::uint8_t high = 0;
    if (finite) {
      low = float_to_e2m1(values[i] * reciprocal);
      if (i + 1 < count) high = float_to_e2m1(values[i + 1] * reciprocal);
    }
    nibbles_packed[i / 2] = e2m1_pack(low, high);
  }
}

}  // namespace megamoe
