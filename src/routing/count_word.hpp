// A count and the number of those who have added to it, in one 64-bit word that one atomic addition
// updates.
#pragma once

#include <cstdint>

namespace megamoe {

/// What one contributor adds: one to the high half, its count to the low half. The value before the
/// addition holds the private offset of the contributor: a prefix sum in order of arrival.
constexpr std::uint64_t count_word(std::int64_t count) {
  return (std::uint64_t{1} << 32) | static_cast<std::uint32_t>(count);
}

constexpr std::int64_t contributors(std::uint64_t word) {
  return static_cast<std::int64_t>(word >> 32);
}

constexpr std::int64_t count_in(std::uint64_t word) {
  return static_cast<std::int64_t>(word & 0xffffffffu);
}

}  // namespace megamoe
