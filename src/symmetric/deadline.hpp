// The end of a wait that the operating system does for us.
#pragma once

#include <algorithm>
#include <chrono>

namespace megamoe {

/// Begins to count when made; zero never expires.
class Deadline {
 public:
  explicit Deadline(std::chrono::nanoseconds limit)
      : start_(std::chrono::steady_clock::now()), limit_(limit) {}

  bool expired() const { return limit_.count() != 0 && passed() >= limit_; }
  std::chrono::nanoseconds limit() const { return limit_; }

  /// What is left, but at most `most`, in whole milliseconds rounded up, as poll() wants it.
  int milliseconds_left(std::chrono::milliseconds most) const {
    if (limit_.count() == 0) return static_cast<int>(most.count());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit_ - passed());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
  }

 private:
  std::chrono::nanoseconds passed() const { return std::chrono::steady_clock::now() - start_; }

  std::chrono::steady_clock::time_point start_;
  std::chrono::nanoseconds limit_;
};

}  // namespace megamoe
