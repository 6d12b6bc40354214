#include "routing/round_robin.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace megamoe {
namespace {

using Counts = std::vector<std::int64_t>;

auto reader(const Counts& counts) {
  return [&counts](std::int64_t rank) { return counts[static_cast<std::size_t>(rank)]; };
}

std::int64_t size_of(const Counts& counts) {
  return static_cast<std::int64_t>(counts.size());
}

/// The order by its definition: deal one row from each rank that still has any, repeatedly.
std::vector<Turn> deal(const Counts& counts) {
  std::vector<Turn> turns;
  const std::int64_t rounds = *std::max_element(counts.begin(), counts.end());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::int64_t r = 0; r < size_of(counts); ++r) {
      if (reader(counts)(r) > round) turns.push_back({r, round});
    }
  }
  return turns;
}

std::string text(const Counts& counts) {
  std::string all;
  for (std::int64_t count : counts) all += std::to_string(count) + " ";
  return all;
}

void expect_dealt(const Counts& counts) {
  const std::vector<Turn> wanted = deal(counts);
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n);
    const Turn turn = turn_of_row(reader(counts), size_of(counts), row);
    ASSERT_TRUE(turn.rank == wanted[n].rank && turn.position == wanted[n].position)
        << "row " << row << " is position " << turn.position << " of rank " << turn.rank
        << ", wanted " << wanted[n].position << " of " << wanted[n].rank << "; counts "
        << text(counts);
    ASSERT_EQ(row_of_turn(reader(counts), size_of(counts), turn), row) << text(counts);
  }
}

/// Counts of one kind: 0 random and small, 1 mostly zero, 2 all equal, 3 one rank has nearly all.
Counts random_counts(std::mt19937_64& random, int kind) {
  Counts counts(static_cast<std::size_t>(random() % 72 + 1));
  const auto common = static_cast<std::int64_t>(random() % 9);
  for (std::int64_t& count : counts) {
    const auto any = static_cast<std::int64_t>(random() % 12);
    count = kind == 0   ? any
            : kind == 1 ? (random() % 8 == 0 ? any : 0)
            : kind == 2 ? common
                        : any / 6;
  }
  if (kind == 3) counts[random() % counts.size()] = static_cast<std::int64_t>(random() % 400);
  return counts;
}

static_assert([] {
  constexpr std::int64_t kCounts[] = {2, 0, 1};
  const auto count = [&](std::int64_t r) { return kCounts[r]; };
  return turn_of_row(count, 3, 1).rank == 2 && turn_of_row(count, 3, 2).rank == 0 &&
         row_of_turn(count, 3, Turn{0, 1}) == 2;
}());

TEST(RoundRobin, BothDirectionsAgreeWithDealingOneRowAtATime) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 4000; ++round) {
    expect_dealt(random_counts(random, round % 4));
    if (HasFatalFailure()) return;
  }
}

TEST(RoundRobin, OneRankTakesItsRowsInOrder) {
  expect_dealt({300});
}

TEST(RoundRobin, RanksWithoutRowsTakeNoTurn) {
  expect_dealt({0, 5, 0, 0, 3, 0});
  expect_dealt({0, 0, 1});
}

TEST(RoundRobin, InEveryPrefixRanksThatStillHaveRowsDifferByAtMostOne) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 400; ++round) {
    const Counts counts = random_counts(random, round % 4);
    const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    Counts taken(counts.size(), 0);
    for (std::int64_t row = 0; row < rows; ++row) {
      const Turn turn = turn_of_row(reader(counts), size_of(counts), row);
      ++taken.at(static_cast<std::size_t>(turn.rank));
      std::int64_t least = INT64_MAX;
      for (std::size_t r = 0; r < counts.size(); ++r) {
        if (taken[r] < counts[r]) least = min64(least, taken[r]);
      }
      for (std::size_t r = 0; r < counts.size(); ++r) {
        ASSERT_TRUE(least == INT64_MAX || taken[r] <= least + 1)
            << "after row " << row << " rank " << r << " has had " << taken[r]
            << " turns, another that still has rows " << least << "; counts " << text(counts);
      }
    }
  }
}

TEST(RoundRobin, CountsBeyondTwoToTheThirtyFirstAreDealtExactly) {
  std::mt19937_64 random(17);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 33;
  for (int round = 0; round < 200; ++round) {
    Counts counts(static_cast<std::size_t>(random() % 72 + 1));
    for (std::int64_t& count : counts) count = static_cast<std::int64_t>(random() % kMost);
    counts[0] = std::int64_t{1} << 32;
    const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    for (int sample = 0; sample < 50; ++sample) {
      const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
      const Turn turn = turn_of_row(reader(counts), size_of(counts), row);
      ASSERT_TRUE(turn.position >= 0 && turn.position < reader(counts)(turn.rank)) << "row " << row;
      ASSERT_EQ(row_of_turn(reader(counts), size_of(counts), turn), row) << text(counts);
    }
    EXPECT_EQ(row_of_turn(reader(counts), size_of(counts),
                          turn_of_row(reader(counts), size_of(counts), rows - 1)),
              rows - 1);
  }
}

TEST(RoundRobin, ARowBeyondTheSumIsNobodys) {
  const Counts counts = {2, 0, 3};
  EXPECT_EQ(turn_of_row(reader(counts), 3, 5).rank, -1);
  EXPECT_EQ(turn_of_row(reader(Counts{0, 0}), 2, 0).rank, -1);
}

}  // namespace
}  // namespace megamoe
