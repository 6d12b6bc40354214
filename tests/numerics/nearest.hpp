// Rounding by search: an oracle that knows a format only by its decoder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace megamoe::test {

/// The codes 0 to `largest` of a format, whose values ascend from zero.
class NearestCode {
 public:
  template <class Decode>
  NearestCode(Decode decode, std::uint32_t largest) {
    for (std::uint32_t code = 0; code <= largest; ++code) values_.push_back(decode(code));
  }

  /// The code nearest to `magnitude` >= 0; of two as near, the even one; beyond the largest value,
  /// the largest code.
  std::uint32_t of(double magnitude) const {
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    const auto low = static_cast<std::uint32_t>(above - values_.begin()) - 1;
    if (above == values_.end()) return low;
    const double to_low = magnitude - values_[low];
    const double to_high = *above - magnitude;
    if (to_low == to_high) return low % 2 == 0 ? low : low + 1;
    return to_low < to_high ? low : low + 1;
  }

 private:
  std::vector<double> values_;
};

}  // namespace megamoe::test
