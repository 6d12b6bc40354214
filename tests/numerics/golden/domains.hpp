// Which codes the golden tables decode.
#pragma once

#include <cstdint>

namespace megamoe::test {

/// The codes 0, step, 2 step ... below `codes`.
struct DecodeDomain {
  std::uint32_t codes;
  std::uint32_t step;
};

inline constexpr DecodeDomain kNibbleDomain{16, 1};
inline constexpr DecodeDomain kByteDomain{256, 1};
/// A prime step meets every exponent of f16 and bf16 often enough, and keeps the tables small.
inline constexpr DecodeDomain kHalfDomain{65536, 61};

}  // namespace megamoe::test
