// Throwing errors whose message is a sentence: what was wanted, what was got, how to fix it. Host
// only.
#pragma once

#include <utility>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void check_argument(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

}  // namespace megamoe
