// Ranks in words, for messages.
#pragma once

#include <span>
#include <string>

#include <fmt/format.h>

namespace megamoe {

/// "rank 2", "ranks 1 and 3", "ranks 1, 2 and 5".
inline std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t n = 0; n < ranks.size(); ++n) {
    if (n > 0) text += n + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}", ranks[n]);
  }
  return text;
}

}  // namespace megamoe
