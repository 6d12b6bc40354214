// The inputs of the golden tables. The tables hold results in this order: after a change here, make
// them again.
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/float_bits.hpp"

namespace megamoe::test {

/// Bit patterns of f32 values: in every binade the ends and the middle; around the limits of f16
/// and bf16 the halfway cases and their neighbours; from 2^-11 to 2^9 all halfway cases of E4M3
/// (and so of E2M1) and their neighbours; NaNs.
inline std::vector<std::uint32_t> chosen_floats() {
  std::vector<std::uint32_t> chosen;
  // Signs alternate: the tables see both, and formats_test proves that encoding is symmetric.
  const auto add = [&chosen](std::uint32_t bits) {
    const std::uint32_t sign = chosen.size() % 2 == 0 ? 0 : kF32SignBit;
    chosen.push_back(bits | sign);
  };
  for (std::uint32_t field = 0; field < 255; ++field) {
    for (std::uint32_t mantissa : {0x000000u, 0x000001u, 0x400000u, 0x400001u, 0x7FFFFFu}) {
      add((field << 23) | mantissa);
    }
  }
  for (std::uint32_t field : {0u, 1u, 101u, 102u, 103u, 107u, 112u, 113u, 127u, 141u, 142u, 254u}) {
    for (std::uint32_t mantissa :
         {0x000FFFu, 0x001000u, 0x001001u, 0x002FFFu, 0x003000u, 0x003001u, 0x007FFFu, 0x008000u,
          0x008001u, 0x017FFFu, 0x018000u, 0x7FEFFFu, 0x7FF000u, 0x7F7FFFu, 0x7F8000u}) {
      add((field << 23) | mantissa);
    }
  }
  for (std::uint32_t field = 116; field <= 136; ++field) {
    for (std::uint32_t sixteenth = 0; sixteenth < 16; ++sixteenth) {
      const std::uint32_t bits = (field << 23) | (sixteenth << 19);
      for (std::uint32_t near : {bits - 1, bits, bits + 1}) add(near);
    }
  }
  for (std::uint32_t special : {0x7F800000u, 0x7F800000u, 0x7F800001u, 0x7F800001u, 0x7FC00000u,
                                0x7FC00000u, 0x7FFFFFFFu, 0x7FFFFFFFu}) {
    add(special);
  }
  return chosen;
}

}  // namespace megamoe::test
