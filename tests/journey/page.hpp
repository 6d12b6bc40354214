// How the generated parts of docs/token-journey.md are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "routing/count_word.hpp"

namespace megamoe::test {

/// Values of a row that are shown.
inline constexpr std::int64_t kShown = 8;

/// A generated part of the page; the text goes between its markers.
inline void print_part(const char* name, const std::string& text) {
  fmt::print("<!-- journey: {} -->\n```text\n{}```\n<!-- end -->\n", name, text);
}

/// One line of a table: a name, then cells.
inline std::string row_text(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("{:<22}", name);
  for (const std::string& cell : cells) text += fmt::format(" {:>10}", cell);
  return text + "\n";
}

inline std::string float_text(float value) {
  return fmt::format("{:.6g}", value);
}

/// The first kShown values, each as `show` writes it.
template <class Values, class Show>
std::vector<std::string> cells(const Values& values, const Show& show) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < kShown; ++i) all.push_back(show(values[i]));
  return all;
}

/// A word of routing/count_word.hpp.
inline std::string count_text(std::uint64_t word) {
  return fmt::format("{:#x} = {} reported, {} routes", word, contributors(word), count_in(word));
}

}  // namespace megamoe::test
