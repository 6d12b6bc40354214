#include "routing/slots.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace megamoe {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Token {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;

  SlotList list(std::int64_t experts) const {
    return {ids.data(), weights.data(), static_cast<std::int64_t>(ids.size()), experts};
  }
};

std::vector<std::int64_t> routes(const SlotList& list) {
  std::vector<std::int64_t> slots;
  for (std::int64_t s = 0; s < list.top_k; ++s) {
    if (is_route(list, s)) slots.push_back(s);
  }
  return slots;
}

using Slots = std::vector<std::int64_t>;

TEST(Slots, NegativeIdsAreNoRoutesAndTheirWeightsAreNotRead) {
  const Token token = {{-1, 3, std::numeric_limits<std::int64_t>::min(), 0}, {kNaN, 2, kNaN, 4}};
  const SlotList list = token.list(4);
  EXPECT_EQ(routes(list), (Slots{1, 3}));
  EXPECT_EQ(route_weight(list, 1), 2);
  EXPECT_EQ(route_weight(list, 3), 4);
  EXPECT_EQ(first_bad_slot(list), -1);
}

TEST(Slots, ATokenOfNegativeIdsHasNoRoute) {
  const Token token = {{-1, -1, -7}, {kNaN, kNaN, kNaN}};
  EXPECT_TRUE(routes(token.list(4)).empty());
  EXPECT_EQ(first_bad_slot(token.list(4)), -1);
}

TEST(Slots, IdsBeyondTheExpertsAreNoRoutesAndTheFirstOfThemIsNamed) {
  const Token token = {{3, 4, std::numeric_limits<std::int64_t>::max(), 4, 0}, {1, 2, 3, 4, 5}};
  const SlotList list = token.list(4);
  EXPECT_EQ(routes(list), (Slots{0, 4}));
  EXPECT_EQ(first_bad_slot(list), 1);
}

TEST(Slots, IdsThatDifferByATwoToTheThirtySecondAreDifferent) {
  const Token token = {{1, (std::int64_t{1} << 32) + 1}, {1, 2}};
  EXPECT_EQ(routes(token.list(8)), (Slots{0}));
  EXPECT_EQ(route_weight(token.list(8), 0), 1);
  EXPECT_EQ(first_bad_slot(token.list(8)), 1);
}

TEST(Slots, AnExpertNamedTwiceIsOneRouteAtItsFirstSlot) {
  const Token token = {{5, 2, 5, 2, 5}, {1, 10, 2, 20, 4}};
  const SlotList list = token.list(6);
  EXPECT_EQ(routes(list), (Slots{0, 1}));
  EXPECT_EQ(route_weight(list, 0), 7);
  EXPECT_EQ(route_weight(list, 1), 30);
}

TEST(Slots, WeightsOfOneExpertAreAddedInSlotOrderInSinglePrecision) {
  // 2^24 + 1 rounds to 2^24: the other order gives 2^24 + 2, double precision 2^24 + 2 as well.
  const Token ascending = {{0, 0, 0}, {0x1p24f, 1, 1}};
  EXPECT_EQ(route_weight(ascending.list(1), 0), 0x1p24f);
  const Token descending = {{0, 0, 0}, {1, 1, 0x1p24f}};
  EXPECT_EQ(route_weight(descending.list(1), 0), 0x1p24f + 2);
}

TEST(Slots, ANaNWeightStaysWithItsExpert) {
  const Token token = {{0, 1, 1}, {1, 2, kNaN}};
  EXPECT_EQ(route_weight(token.list(2), 0), 1);
  EXPECT_TRUE(std::isnan(route_weight(token.list(2), 1)));
}

TEST(Slots, RandomListsOfUpToThirtyTwoSlotsAgreeWithALoopOverExperts) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto experts = static_cast<std::int64_t>(random() % 20 + 1);
    Token token;
    for (std::uint64_t s = random() % 32 + 1; s > 0; --s) {
      token.ids.push_back(static_cast<std::int64_t>(random() % 24) - 2);
      token.weights.push_back(static_cast<float>(random() % 1000) / 7);
    }
    const SlotList list = token.list(experts);
    std::vector<float> wanted(token.ids.size(), -1);
    for (std::int64_t e = 0; e < experts; ++e) {
      float* first = nullptr;
      for (std::size_t s = 0; s < token.ids.size(); ++s) {
        if (token.ids[s] != e) continue;
        if (first == nullptr) {
          first = &wanted[s];
          *first = token.weights[s];
        } else {
          *first += token.weights[s];
        }
      }
    }
    for (std::int64_t s = 0; s < list.top_k; ++s) {
      const float got = is_route(list, s) ? route_weight(list, s) : -1;
      ASSERT_EQ(got, wanted[static_cast<std::size_t>(s)]) << "round " << round << " slot " << s;
    }
  }
}

}  // namespace
}  // namespace megamoe
