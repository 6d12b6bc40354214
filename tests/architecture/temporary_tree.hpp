// A small source tree, for planting violations in.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace megamoe::test {

class TemporaryTree {
 public:
  TemporaryTree() {
    static int made = 0;
    root_ = std::filesystem::path(testing::TempDir()) /
            ("megamoe-tree-" + std::to_string(getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(root_);
  }
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;
  ~TemporaryTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::filesystem::path& root() const { return root_; }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace megamoe::test
