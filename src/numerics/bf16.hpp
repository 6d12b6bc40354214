// bf16: the upper half of an f32.
#pragma once

#include <cstdint>

#include "megamoe/types.hpp"

#include "numerics/float_bits.hpp"

namespace megamoe {

inline constexpr BFloat16 kBf16NaN{0x7FFF};

/// Exact; a NaN keeps its payload.
constexpr float to_float(BFloat16 value) {
  return f32_from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Round to nearest, ties to even. Overflow gives infinity; every NaN gives 0x7FFF, as cuda_bf16.h
/// and the hardware do.
constexpr BFloat16 to_bf16(float value) {
  if (is_nan(value)) return kBf16NaN;
  return BFloat16{static_cast<std::uint16_t>(shift_right_nearest_even(f32_bits(value), 16))};
}

}  // namespace megamoe
