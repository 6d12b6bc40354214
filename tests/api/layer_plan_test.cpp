// How ranks share the cores of their host.
#include "api/layer_plan.hpp"

#include <gtest/gtest.h>

namespace megamoe {
namespace {

TEST(Cores, OfRanksBoundToTheirOwnAreAllTheirs) {
  const auto parts = [](const std::vector<CoreSet>& sets) {
    std::vector<std::int64_t> all;
    for (std::size_t rank = 0; rank < sets.size(); ++rank) {
      all.push_back(part_of_cores(sets, rank));
    }
    return all;
  };
  using Parts = std::vector<std::int64_t>;
  EXPECT_EQ(parts({{0, 1, 2, 3}, {4, 5, 6, 7}}), (Parts{4, 4}));
  EXPECT_EQ(parts({{0, 1, 2, 3}, {0, 1, 2, 3}}), (Parts{2, 2}));
  EXPECT_EQ(parts({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}), (Parts{1, 1, 1}));
  // Two to a socket.
  EXPECT_EQ(parts({{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}}), (Parts{2, 2, 2, 2}));
  EXPECT_EQ(parts({{0, 1, 2, 3}, {3}}), (Parts{3, 1}));
  EXPECT_EQ(parts({{0}, {0}, {0}}), (Parts{1, 1, 1}));
  EXPECT_EQ(parts({{}, {0, 1}}), (Parts{1, 2})) << "a rank whose system does not say";
}

}  // namespace
}  // namespace megamoe
