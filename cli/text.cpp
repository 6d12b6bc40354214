#include "cli/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.hpp"

namespace megamoe::cli {
namespace {

constexpr std::array<std::pair<std::string_view, std::int64_t>, 10> kUnits{
    {{"", 1},
     {"k", 1000},
     {"M", 1000 * 1000},
     {"G", 1000 * 1000 * 1000},
     {"K", 1000},
     {"Ki", 1024},
     {"Mi", 1024 * 1024},
     {"Gi", 1024 * 1024 * 1024},
     {"ki", 1024},
     {"m", 1000 * 1000}}};

// Three years: longer is for ever, and in nanoseconds it leaves room for sums.
constexpr double kMaxSeconds = 1e8;

}  // namespace

std::int64_t parse_count(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  if (!unit.empty() && unit.back() == 'B') unit.remove_suffix(1);
  for (const auto& [name, factor] : kUnits) {
    if (end == text.c_str() || name != unit) continue;
    const double scaled = value * static_cast<double>(factor);
    if (scaled >= 0 && scaled < 9e15 &&
        scaled == static_cast<double>(static_cast<std::int64_t>(scaled))) {
      return static_cast<std::int64_t>(scaled);
    }
  }
  fail(ErrorCode::invalid_argument,
       "'{}' is no count: a whole number is wanted, as in 64, 4k or 2GiB", text);
}

std::int64_t parse_positive(const std::string& text) {
  const std::int64_t count = parse_count(text);
  check_argument(count >= 1, "'{}' is too few: at least 1 is wanted", text);
  return count;
}

std::vector<std::int64_t> parse_counts(const std::string& text) {
  std::vector<std::int64_t> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    counts.push_back(parse_count(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return counts;
}

std::chrono::nanoseconds parse_seconds(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  check_argument(end != text.c_str() && *end == '\0' && seconds >= 0 && seconds <= kMaxSeconds,
                 "'{}' is no time: seconds from 0 (for ever) to {:.0e} are wanted", text,
                 kMaxSeconds);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e9)));
}

std::string human_bytes(std::int64_t bytes) {
  static constexpr const char* kBinaryUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kBinaryUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kBinaryUnits[unit]);
}

std::string Table::str() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += c == 0 ? fmt::format("{:<{}}", row[c], widths[c])
                     : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

std::string duration(std::int64_t ns) {
  const double us = static_cast<double>(ns) / 1000;
  if (us < 1000) return fmt::format("{:.3g} us", us);
  if (us < 1e6) return fmt::format("{:.3g} ms", us / 1000);
  return fmt::format("{:.3g} s", us / 1e6);
}

}  // namespace megamoe::cli
