// Whole files in memory, mapped instead of read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace megamoe {

struct MappedFile {
  std::shared_ptr<const void> owner;  ///< unmaps with its last copy; null for an empty file
  std::span<const std::byte> bytes;
};

/// Maps a regular file for reading. Throws Error{io} that names the path.
MappedFile map_file(const std::filesystem::path& path);

}  // namespace megamoe
