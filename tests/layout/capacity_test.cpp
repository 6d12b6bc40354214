#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "layout/shape.hpp"

namespace megamoe {
namespace {

using Rows = std::vector<std::int64_t>;

constexpr LayerShape kShape = make_shape({.hidden = 96,
                                          .intermediate = 200,
                                          .experts = 7,
                                          .shared_experts = 2,
                                          .top_k = 3,
                                          .max_tokens = 385,
                                          .recipe = Recipe::bf16_bf16},
                                         3);
static_assert(kShape.max_tokens == 768 && kShape.recipe == Recipe::bf16_bf16);
static_assert(kShape.experts_per_rank() == 3 && kShape.pool_experts() == 5);
static_assert(kShape.combine_slots() == 5 && kShape.intermediate_groups() == 2);

/// Rows of the pool that these counts use with a BLOCK_M.
std::int64_t rows_used(const Rows& rows, std::int64_t block_rows) {
  std::int64_t used = 0;
  for (std::int64_t count : rows) used += round_up(count, block_rows);
  return used;
}

/// What a rank may receive: at most `most` rows for one expert and `total` for all.
struct Bounds {
  std::int64_t experts;
  std::int64_t most;
  std::int64_t total;
};

/// Gives `total` rows out, expert after expert, each as many as it may have beyond `first`.
Rows fill(const Bounds& bounds, const Rows& first) {
  Rows rows = first;
  std::int64_t left = bounds.total - std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  for (std::int64_t& count : rows) {
    const std::int64_t more = min64(left, bounds.most - count);
    count += more;
    left -= more;
  }
  return rows;
}

/// Everything to the first experts; as evenly as it goes; one row over a multiple of BLOCK_M at as
/// many experts as possible; at random.
std::vector<Rows> distributions(const Bounds& bounds, std::int64_t block_rows,
                                std::mt19937_64& random) {
  const auto experts = static_cast<std::size_t>(bounds.experts);
  std::vector<Rows> all = {fill(bounds, Rows(experts, 0))};
  all.push_back(fill(bounds, Rows(experts, min64(bounds.most, bounds.total / bounds.experts))));

  Rows one_over(experts, 0);
  std::int64_t left = bounds.total;
  for (std::int64_t step : {std::int64_t{1}, block_rows}) {
    for (bool gave = true; gave;) {
      gave = false;
      for (std::int64_t& count : one_over) {
        if (left < step || count + step > bounds.most || (step == 1 && count > 0)) continue;
        count += step;
        left -= step;
        gave = true;
      }
    }
  }
  all.push_back(one_over);

  Rows chance(experts, 0);
  for (std::int64_t& count : chance) {
    count = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bounds.most + 1));
  }
  while (std::accumulate(chance.begin(), chance.end(), std::int64_t{0}) > bounds.total) {
    for (std::int64_t& count : chance) count /= 2;
  }
  all.push_back(fill(bounds, chance));
  return all;
}

/// "" if the pool of a rank holds whatever its group can send it, else what it does not hold.
std::string overflow(const LayerShape& shape, std::int64_t tokens, std::mt19937_64& random) {
  const std::int64_t local = shape.experts_per_rank();
  const Bounds bounds = {local, shape.ranks * tokens,
                         shape.ranks * tokens * min64(shape.top_k, local)};
  for (std::int64_t block_rows : kBlockRows) {
    for (Rows rows : distributions(bounds, block_rows, random)) {
      rows.insert(rows.end(), static_cast<std::size_t>(shape.shared_experts), tokens);
      const std::int64_t used = rows_used(rows, block_rows);
      if (used > shape.pool_rows() || used / block_rows > shape.pool_blocks()) {
        return fmt::format("R {} E {} K {} T {} BLOCK_M {} uses {} rows of {}", shape.ranks,
                           shape.experts, shape.top_k, tokens, block_rows, used, shape.pool_rows());
      }
    }
  }
  return "";
}

TEST(Capacity, ThePoolHoldsTheWorstThatAGroupCanSend) {
  std::mt19937_64 random(1);
  for (std::int64_t ranks : {1, 2, 3, 8, 72}) {
    for (std::int64_t experts : {1, 2, 3, 5, 8, 64, 256}) {
      for (std::int64_t top_k : {1, 2, 3, 8, 32}) {
        for (std::int64_t tokens : {1, 15, 16, 17, 383, 384, 385, 1152}) {
          const LayerConfig config = {.hidden = 32,
                                      .intermediate = 32,
                                      .experts = experts,
                                      .shared_experts = tokens % 3,
                                      .top_k = min64(top_k, experts),
                                      .max_tokens = tokens};
          ASSERT_EQ(overflow(make_shape(config, ranks), tokens, random), "");
        }
      }
    }
  }
}

TEST(Capacity, ThePoolIsNoLargerThanRoutesAndPaddingMakeIt) {
  for (std::int64_t ranks : {1, 3, 72}) {
    for (std::int64_t experts : {1, 7, 256}) {
      const LayerShape shape = {
          .experts = experts, .top_k = min64(8, experts), .ranks = ranks, .max_tokens = 384};
      const std::int64_t local = shape.experts_per_rank();
      EXPECT_LT(shape.pool_rows(), ranks * 384 * min64(shape.top_k, local) +
                                       (kMaxBlockRows - 1) * local + kCapacityStep);
    }
  }
}

TEST(Capacity, TheStepIsTheLeastCommonMultipleOfTheBlocks) {
  std::int64_t multiple = 1;
  for (std::int64_t block_rows : kBlockRows) multiple = std::lcm(multiple, block_rows);
  EXPECT_EQ(multiple, kCapacityStep);
  EXPECT_EQ(*std::min_element(std::begin(kBlockRows), std::end(kBlockRows)), kMinBlockRows);
  EXPECT_EQ(*std::max_element(std::begin(kBlockRows), std::end(kBlockRows)), kMaxBlockRows);
  EXPECT_TRUE(std::is_sorted(std::begin(kBlockRows), std::end(kBlockRows)));
}

TEST(Capacity, TokensPerRankAreRoundedUpToTheStep) {
  for (std::int64_t tokens : {1, 383, 384, 385, 56000}) {
    const std::int64_t capacity =
        make_shape({.experts = 1, .top_k = 1, .max_tokens = tokens}, 1).max_tokens;
    EXPECT_EQ(capacity % kCapacityStep, 0) << tokens;
    EXPECT_GE(capacity, tokens);
    EXPECT_LT(capacity, tokens + kCapacityStep);
  }
}

}  // namespace
}  // namespace megamoe
