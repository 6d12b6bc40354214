#include "base/units.hpp"

#include <fmt/format.h>

namespace megamoe {

std::string as_text(std::chrono::nanoseconds time) {
  using namespace std::chrono_literals;
  const auto ns = static_cast<double>(time.count());
  if (time == 0ns || time >= 100ms) return fmt::format("{:.1f} s", ns / 1e9);
  if (time >= 1ms) return fmt::format("{:.3g} ms", ns / 1e6);
  if (time >= 1us) return fmt::format("{:.3g} us", ns / 1e3);
  return fmt::format("{} ns", time.count());
}

}  // namespace megamoe
