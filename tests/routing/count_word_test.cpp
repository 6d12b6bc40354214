#include "routing/count_word.hpp"

#include <random>

#include <gtest/gtest.h>

namespace megamoe {
namespace {

static_assert(count_word(0) == std::uint64_t{1} << 32);
static_assert(count_in(count_word(7)) == 7 && contributors(count_word(7)) == 1);

TEST(CountWord, TheSumHoldsHowManyContributedAndHowMuch) {
  std::mt19937_64 random(5);
  std::uint64_t word = 0;
  std::int64_t sum = 0;
  for (std::int64_t added = 0; added < 1024; ++added) {
    ASSERT_EQ(contributors(word), added);
    ASSERT_EQ(count_in(word), sum) << "the private offset of contributor " << added;
    const auto count = static_cast<std::int64_t>(random() % (std::uint64_t{1} << 22));
    word += count_word(count);
    sum += count;
  }
  EXPECT_GT(sum, std::int64_t{1} << 31) << "the counts are to pass 2^31";
}

TEST(CountWord, TheLargestCountDoesNotReachTheContributors) {
  const std::uint64_t word = count_word(0xffffffff) + count_word(0);
  EXPECT_EQ(contributors(word), 2);
  EXPECT_EQ(count_in(word), 0xffffffff);
}

TEST(CountWord, ContributorsWithoutRowsAreCountedToo) {
  std::uint64_t word = 0;
  for (int rank = 0; rank < 72; ++rank) word += count_word(0);
  EXPECT_EQ(contributors(word), 72);
  EXPECT_EQ(count_in(word), 0);
}

}  // namespace
}  // namespace megamoe
