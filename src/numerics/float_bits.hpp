// The bit pattern of an f32, and the questions that are asked of it. Comparisons of bits keep NaN
// where comparisons of floats drop it.
#pragma once

#include <bit>
#include <cstdint>

namespace megamoe {

inline constexpr std::uint32_t kF32SignBit = 0x8000'0000u;
inline constexpr std::uint32_t kF32InfinityBits = 0x7F80'0000u;
inline constexpr std::uint32_t kF32NaNBits = 0x7FFF'FFFFu;

constexpr std::uint32_t f32_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
constexpr float f32_from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// The bits of |value|. They order finite magnitudes as numbers, with infinity above them and NaN
/// above infinity.
constexpr std::uint32_t magnitude_bits(float value) {
  return f32_bits(value) & ~kF32SignBit;
}

constexpr bool is_nan(float value) {
  return magnitude_bits(value) > kF32InfinityBits;
}
constexpr bool is_finite(float value) {
  return magnitude_bits(value) < kF32InfinityBits;
}

/// The upper 32 - `shift` bits of `bits`, rounded to nearest, ties to even; 1 <= shift <= 31.
/// A carry out of the mantissa runs into the exponent, which is what rounding up to a power of two
/// means.
constexpr std::uint32_t shift_right_nearest_even(std::uint32_t bits, unsigned shift) {
  const std::uint32_t below_half = (1u << (shift - 1)) - 1;
  const std::uint32_t odd = (bits >> shift) & 1u;
  return (bits + below_half + odd) >> shift;
}

}  // namespace megamoe
