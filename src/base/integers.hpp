// Integer helpers that host and device share. Every size and offset of the project is a 64-bit
// integer.
#pragma once

#include <cstdint>

namespace megamoe {

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The least multiple of `step` that is at least `value`; value >= 0, step > 0.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return ceil_div(value, step) * step;
}

constexpr std::int64_t min64(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
constexpr std::int64_t max64(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

/// The part of [0, count) that member `index` of `size` takes: contiguous, and sizes differ by at
/// most one.
struct Share {
  std::int64_t begin;
  std::int64_t end;
};
constexpr Share share_of(std::int64_t count, std::int64_t index, std::int64_t size) {
  return {count * index / size, count * (index + 1) / size};
}

}  // namespace megamoe
