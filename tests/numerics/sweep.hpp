// The f32 values that the tests of the formats try: a chosen few thousand, and a sweep over all bit
// patterns.
#pragma once

#include <cstdint>
#include <ios>
#include <vector>

#include <gtest/gtest.h>

#include "numerics/chosen_floats.hpp"

namespace megamoe::test {

/// Prime: the sweep meets every exponent and sign, and every pattern of low mantissa bits.
inline constexpr std::uint64_t kSweepStride = 97;

/// Calls `visit(float)` until it returns false: the chosen floats of both signs, then every
/// `stride`-th bit pattern.
template <class Visit>
void sweep_floats(std::uint64_t stride, Visit visit) {
  for (std::uint32_t bits : chosen_floats()) {
    if (!visit(f32_from_bits(bits)) || !visit(f32_from_bits(bits ^ kF32SignBit))) return;
  }
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += stride) {
    if (!visit(f32_from_bits(static_cast<std::uint32_t>(bits)))) return;
  }
}

/// Succeeds where `got(x) == wanted(x)` for every swept x, else names the first x that differs.
template <class Got, class Wanted>
::testing::AssertionResult same_on_every_swept_float(Got got, Wanted wanted) {
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  sweep_floats(kSweepStride, [&](float x) {
    const auto ours = got(x);
    const auto theirs = wanted(x);
    if (ours == theirs) return true;
    result = ::testing::AssertionFailure()
             << std::hex << "f32 0x" << f32_bits(x) << " (" << x << "): got 0x"
             << std::uint32_t{ours} << ", wanted 0x" << std::uint32_t{theirs};
    return false;
  });
  return result;
}

}  // namespace megamoe::test
