// Numbers and tables as people read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace megamoe::cli {

/// "64", "4k", "2M": k, M, G are powers of 1000, Ki, Mi, Gi of 1024, an optional B is ignored.
/// Throws Error{invalid_argument}.
std::int64_t parse_count(const std::string& text);

/// The same, from 1 on.
std::int64_t parse_positive(const std::string& text);

/// "1,4,16": counts as above. Throws for none at all.
std::vector<std::int64_t> parse_counts(const std::string& text);

/// "30", "0.5": seconds, rounded up to a nanosecond, so that only 0 is zero. Throws
/// Error{invalid_argument} for what is no number, negative, or beyond 1e8.
std::chrono::nanoseconds parse_seconds(const std::string& text);

/// "512 B", "1.5 MiB".
std::string human_bytes(std::int64_t bytes);

/// A table with a header row; the first column is left-aligned, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Nanoseconds as microseconds or milliseconds with three significant digits: "87.1 us".
std::string duration(std::int64_t ns);

}  // namespace megamoe::cli
