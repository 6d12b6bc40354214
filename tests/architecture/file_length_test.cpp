#include "architecture/file_length.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "architecture/temporary_tree.hpp"

namespace megamoe::test {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "int x;\n";
  return text;
}

std::string verdict(const TemporaryTree& tree) {
  return joined(check_lengths(tree.root(), tree.root() / "long_files.txt").violations);
}

TEST(FileLength, EverySourceFileFitsOrSaysWhyNot) {
  const std::filesystem::path root = MEGAMOE_ROOT;
  const LengthReport report = check_lengths(root, root / "tests/architecture/long_files.txt");
  EXPECT_EQ(joined(report.violations), "");
  EXPECT_GT(report.files, 50) << "these are not the sources";
}

TEST(FileLength, ALongFileIsReported) {
  const TemporaryTree tree;
  tree.write("src/base/a.hpp", lines(400));
  EXPECT_EQ(verdict(tree), "");
  tree.write("src/base/b.hpp", lines(401));
  EXPECT_EQ(verdict(tree),
            "src/base/b.hpp has 401 lines: at most 400, or a reason in long_files.txt\n");
}

TEST(FileLength, EveryKindOfSourceIsLookedAt) {
  for (const char* path : {"bench/a.cpp", "cli/a.cpp", "cmake/a.cmake", "include/megamoe/a.hpp",
                           "python/a.py", "src/sm90/a.cu", "src/sm90/a.cuh", "src/CMakeLists.txt",
                           "tests/base/a_test.cpp", "tools/a.sh"}) {
    const TemporaryTree tree;
    tree.write(path, lines(401));
    EXPECT_NE(verdict(tree), "") << path;
  }
}

TEST(FileLength, ALongFileWithAReasonIsAccepted) {
  const TemporaryTree tree;
  tree.write("src/base/b.hpp", lines(500));
  tree.write("long_files.txt", "# why\n\nsrc/base/b.hpp: a table that belongs together\n");
  EXPECT_EQ(verdict(tree), "");
}

TEST(FileLength, AnExceptionWithoutReasonOrNeedIsReported) {
  const TemporaryTree tree;
  tree.write("src/base/a.hpp", lines(3));
  tree.write("src/base/b.hpp", lines(500));
  for (const char* exception : {"src/base/b.hpp", "src/base/b.hpp:", "src/base/b.hpp:  ",
                                "src/base/a.hpp: short", "src/base/gone.hpp: gone"}) {
    tree.write("long_files.txt", std::string(exception) + "\n");
    EXPECT_NE(verdict(tree).find("long_files.txt: "), std::string::npos) << exception;
  }
}

}  // namespace
}  // namespace megamoe::test
