#include "routing/placement.hpp"

#include <gtest/gtest.h>

namespace megamoe {
namespace {

constexpr LayerShape shape_of(std::int64_t experts, std::int64_t ranks) {
  return {.experts = experts, .top_k = 1, .ranks = ranks, .max_tokens = kCapacityStep};
}

static_assert(home_of(shape_of(256, 8), 255).rank == 7);
static_assert(home_of(shape_of(256, 8), 255).local_expert == 31);

TEST(Placement, EveryExpertHasOneHomeThatLeadsBackToIt) {
  for (std::int64_t experts = 1; experts <= 70; ++experts) {
    for (std::int64_t ranks = 1; ranks <= 72; ++ranks) {
      const LayerShape shape = shape_of(experts, ranks);
      for (std::int64_t e = 0; e < experts; ++e) {
        const ExpertHome home = home_of(shape, e);
        ASSERT_TRUE(home.rank >= 0 && home.rank < ranks)
            << "expert " << e << " of " << experts << " at rank " << home.rank << " of " << ranks;
        ASSERT_TRUE(home.local_expert >= 0 && home.local_expert < local_experts(shape, home.rank))
            << "expert " << e << " of " << experts << " is local " << home.local_expert;
        ASSERT_EQ(expert_of(shape, home), e) << experts << " experts, " << ranks << " ranks";
      }
    }
  }
}

TEST(Placement, TheRanksTogetherOwnEveryExpertAndNoneMoreThanARange) {
  for (std::int64_t experts = 1; experts <= 70; ++experts) {
    for (std::int64_t ranks = 1; ranks <= 72; ++ranks) {
      const LayerShape shape = shape_of(experts, ranks);
      std::int64_t owned = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        ASSERT_GE(local_experts(shape, rank), 0) << "rank " << rank << " of " << ranks;
        ASSERT_LE(local_experts(shape, rank), shape.experts_per_rank()) << "rank " << rank;
        owned += local_experts(shape, rank);
      }
      ASSERT_EQ(owned, experts) << ranks << " ranks";
    }
  }
}

TEST(Placement, ExpertsThatDoNotDivideLeaveTheLastRankFewer) {
  const LayerShape shape = shape_of(8, 3);
  EXPECT_EQ(local_experts(shape, 0), 3);
  EXPECT_EQ(local_experts(shape, 1), 3);
  EXPECT_EQ(local_experts(shape, 2), 2);
  EXPECT_EQ(home_of(shape, 3).rank, 1);
  EXPECT_EQ(home_of(shape, 7).local_expert, 1);
  EXPECT_EQ(expert_of(shape, {2, 2}), 8) << "beyond the experts: nobody's";
}

TEST(Placement, ARankMayOwnNoneThoughThereAreMoreExpertsThanRanks) {
  const LayerShape shape = shape_of(9, 8);  // ranges of two: four ranks of two, one of one
  EXPECT_EQ(local_experts(shape, 4), 1);
  for (std::int64_t rank = 5; rank < 8; ++rank) EXPECT_EQ(local_experts(shape, rank), 0) << rank;
}

TEST(Placement, WithMoreRanksThanExpertsTheLastRanksOwnNone) {
  const LayerShape shape = shape_of(3, 5);
  for (std::int64_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(local_experts(shape, rank), rank < 3 ? 1 : 0) << rank;
  }
}

}  // namespace
}  // namespace megamoe
