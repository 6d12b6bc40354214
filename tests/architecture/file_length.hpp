// Source files fit in 400 lines, or say in long_files.txt why not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace megamoe::test {

inline constexpr int kMaxLines = 400;

struct LengthReport {
  std::vector<std::string> violations;
  int files = 0;  ///< files that were looked at
};

/// Reads the source folders below `root`. A line of `exceptions` is `path: reason`, the path from
/// `root`; empty lines and those that begin with # say nothing. An exception that is no longer
/// needed, or has no reason, is a violation too.
LengthReport check_lengths(const std::filesystem::path& root,
                           const std::filesystem::path& exceptions);

}  // namespace megamoe::test
