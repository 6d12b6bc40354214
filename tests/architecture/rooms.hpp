// The one direction between the rooms, checked against what files include and what CMake says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace megamoe::test {

struct RoomReport {
  std::vector<std::string> violations;  ///< file, line, and what is wrong there
  int includes = 0;                     ///< include lines that were looked at
  int rooms = 0;                        ///< rooms whose CMakeLists.txt was read
};

/// Reads include/, src/, cli/ and python/ below `root`.
RoomReport check_rooms(const std::filesystem::path& root);

}  // namespace megamoe::test
