#include "architecture/rooms.hpp"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "architecture/temporary_tree.hpp"

namespace megamoe::test {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

/// What the checker says of a tree with this one file.
std::string verdict(const std::string& path, const std::string& text) {
  const TemporaryTree tree;
  tree.write(path, text);
  return joined(check_rooms(tree.root()).violations);
}

std::string include_of(const std::string& path) {
  return fmt::format("#include \"{}\"\n", path);
}

TEST(Rooms, OfThisTreeIncludeOnlyRoomsToTheirLeft) {
  const RoomReport report = check_rooms(MEGAMOE_ROOT);
  EXPECT_EQ(joined(report.violations), "");
  EXPECT_GT(report.includes, 100) << "these are not the sources";
  EXPECT_GE(report.rooms, 9) << "these are not the rooms";
}

TEST(Rooms, AnIncludeToTheRightIsReportedWithFileAndLine) {
  EXPECT_EQ(verdict("src/plan/deep/a.cpp", "\n" + include_of("cpu/engine.hpp")),
            "src/plan/deep/a.cpp:2: plan includes cpu/engine.hpp, which is not to its left\n");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"base", "numerics"},       {"numerics", "layout"}, {"layout", "routing"},
           {"routing", "schedule"},    {"schedule", "plan"},   {"plan", "device"},
           {"device", "symmetric"},    {"symmetric", "cpu"},   {"symmetric", "sm90"},
           {"cpu", "mqa_logits"},      {"sm90", "mqa_logits"}, {"mqa_logits", "execution"},
           {"execution", "api"},       {"api", "cli"},         {"api", "python"},
           {"base", "checkpoint"},     {"cpu", "checkpoint"},  {"checkpoint", "layout"},
           {"checkpoint", "api"},      {"api", "no_cuda"},     {"no_cuda", "api"},
           {"execution", "checkpoint"}}) {
    EXPECT_NE(verdict(fmt::format("src/{}/a.hpp", from), include_of(to + "/b.hpp")), "")
        << from << " " << to;
  }
}

TEST(Rooms, NeighboursDoNotIncludeEachOther) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"src/cpu", "sm90"}, {"src/sm90", "cpu"}, {"cli", "python"}, {"python", "cli"}}) {
    EXPECT_NE(verdict(from + "/a.cpp", include_of(to + "/b.hpp")), "") << from << " " << to;
  }
}

TEST(Rooms, AnIncludeToTheLeftIsAccepted) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"src/base", "base"},
                                                        {"src/base", "megamoe"},
                                                        {"src/plan", "base"},
                                                        {"src/symmetric", "device"},
                                                        {"src/cpu", "plan"},
                                                        {"src/execution", "cpu"},
                                                        {"src/execution", "sm90"},
                                                        {"src/checkpoint", "numerics"},
                                                        {"src/api", "checkpoint"},
                                                        {"src/no_cuda", "execution"},
                                                        {"cli", "api"},
                                                        {"python", "checkpoint"}}) {
    EXPECT_EQ(verdict(from + "/a.cpp", include_of(to + "/b.hpp")), "") << from << " " << to;
  }
}

TEST(Rooms, ARoomInAngleBracketsIsARoomAllTheSame) {
  EXPECT_NE(verdict("src/base/a.hpp", "#  include <api/group_state.hpp>\n"), "");
  EXPECT_EQ(verdict("src/base/a.hpp", "#include <vector>\n#include <sys/mman.h>\n"), "");
}

TEST(Rooms, AQuotedPathThatDoesNotBeginWithARoomIsReported) {
  EXPECT_NE(verdict("src/base/a.hpp", include_of("check.hpp")), "");
  EXPECT_NE(verdict("src/base/a.hpp", include_of("../api/group_state.hpp")), "");
  EXPECT_NE(verdict("src/base/a.hpp", include_of("tests/support.hpp")), "");
}

TEST(Rooms, ThePublicFaceIncludesNeitherRoomsNorCuda) {
  EXPECT_EQ(verdict("include/megamoe/a.hpp", include_of("megamoe/b.hpp") + "#include <string>\n"),
            "");
  EXPECT_NE(verdict("include/megamoe/a.hpp", include_of("base/check.hpp")), "");
  for (const char* header : {"cuda.h", "cuda_runtime.h", "cuda_fp8.h", "cuda/std/array", "nvrtc.h",
                             "cooperative_groups.h", "cute/tensor.hpp"}) {
    const std::string text = fmt::format("#include <{}>\n", header);
    EXPECT_NE(verdict("include/megamoe/a.hpp", text), "") << header;
  }
}

TEST(Rooms, OnlyTheRoomsOfTheDeviceIncludeCuda) {
  for (const char* room : {"base", "numerics", "layout", "routing", "schedule", "plan", "cpu",
                           "checkpoint", "api", "no_cuda"}) {
    EXPECT_NE(verdict(fmt::format("src/{}/a.hpp", room), "#include <cuda_fp8.h>\n"), "") << room;
  }
  EXPECT_EQ(verdict("src/sm90/a.cuh", "#include <cuda_fp8.h>\n"), "");
  EXPECT_EQ(verdict("src/device/a.hpp", "#include <cuda_runtime.h>\n"), "");
}

TEST(Rooms, AFolderThatIsNoRoomIsReported) {
  EXPECT_NE(verdict("src/utils/a.hpp", ""), "");
}

TEST(Rooms, ADependencyToTheRightIsReported) {
  EXPECT_EQ(
      verdict("src/layout/CMakeLists.txt", "megamoe_room(layout\n  DEPENDS numerics plan\n)\n"),
      "src/layout/CMakeLists.txt: layout depends on plan, which is not to its left\n");
  EXPECT_NE(verdict("src/cpu/CMakeLists.txt", "megamoe_room(cpu DEPENDS cpu)"), "");
  EXPECT_NE(verdict("src/cpu/CMakeLists.txt", "megamoe_room(cpu DEPENDS sm90 LINK fmt::fmt)"), "");
  EXPECT_EQ(
      verdict("src/cpu/CMakeLists.txt",
              "# megamoe_room(cpu DEPENDS api)\nmegamoe_room(cpu DEPENDS plan SOURCES a.cpp)"),
      "");
}

TEST(Rooms, ACMakeFileThatDeclaresAnotherRoomOrNoneIsReported) {
  EXPECT_NE(verdict("src/cpu/CMakeLists.txt", "megamoe_room(plan DEPENDS schedule)"), "");
  EXPECT_NE(verdict("src/cpu/CMakeLists.txt", "add_library(cpu a.cpp)"), "");
}

TEST(Rooms, AnIncludeOfARoomThatCMakeDoesNotNameIsReported) {
  const TemporaryTree tree;
  tree.write("src/layout/CMakeLists.txt", "megamoe_room(layout DEPENDS numerics)");
  tree.write("src/numerics/CMakeLists.txt", "megamoe_room(numerics)");
  tree.write("src/layout/a.hpp", include_of("numerics/b.hpp") + include_of("base/c.hpp"));
  EXPECT_EQ(
      joined(check_rooms(tree.root()).violations),
      "src/layout/a.hpp:2: layout includes base/c.hpp, but its CMakeLists.txt does not depend "
      "on base\n");
  tree.write("src/numerics/CMakeLists.txt", "megamoe_room(numerics DEPENDS base)");
  EXPECT_EQ(joined(check_rooms(tree.root()).violations), "");
}

}  // namespace
}  // namespace megamoe::test
