#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

GroupOptions within(std::chrono::nanoseconds deadline) {
  return {deadline};
}

TEST(ThreadGroup, GathersPayloadsOfUnequalSizesInRankOrder) {
  std::vector<std::string> seen(3);
  const auto errors = run_threads(3, {}, [&](const auto& group) {
    const auto all = group->all_gather(bytes_of(std::string(group->rank() * 5, 'a')), "compare");
    const auto again = group->all_gather(bytes_of(std::to_string(group->rank())), "compare");
    for (const auto& payload : all) seen[group->rank()] += std::to_string(payload.size()) + " ";
    for (const auto& payload : again) seen[group->rank()] += text_of(payload) + " ";
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(errors[rank]) << rank;
    EXPECT_EQ(seen[rank], "0 5 10 0 1 2 ") << rank;
  }
}

TEST(ThreadGroup, PartsAreZeroFilledAndVisibleBothWays) {
  constexpr std::int64_t kBytes = 10000;
  const auto errors = run_threads(3, {}, [&](const auto& group) {
    const auto memory = group->allocate(kBytes);
    EXPECT_EQ(memory->bytes(), kBytes);
    for (std::int64_t n = 0; n < kBytes; ++n) {
      ASSERT_EQ(memory->base(group->rank())[n], std::byte{0}) << n;
    }
    group->all_gather({}, "see zeros");
    for (int to = 0; to < 3; ++to) memory->base(to)[group->rank()] = std::byte(7 + group->rank());
    group->all_gather({}, "write");
    for (int at = 0; at < 3; ++at) {
      for (int from = 0; from < 3; ++from) {
        EXPECT_EQ(memory->base(at)[from], std::byte(7 + from)) << at << " " << from;
      }
    }
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(errors[rank]) << rank;
}

TEST(ThreadGroup, APartOutlivesTheRankThatMadeIt) {
  std::unique_ptr<SymmetricMemory> kept;
  run_threads(2, {}, [&](const auto& group) {
    auto memory = group->allocate(4096);
    if (group->rank() == 0) kept = std::move(memory);
  });
  kept->base(1)[4095] = std::byte{1};
  EXPECT_EQ(kept->base(1)[4095], std::byte{1});
}

TEST(ThreadGroup, AShortDeadlineIsNotSaidToBeZero) {
  const auto group = make_thread_group(2, within(1ns));
  EXPECT_TRUE(says(error_of([&] { group[1]->all_gather({}, "compare shapes"); }),
                   ErrorCode::deadline, {"rank 0 did not come within 1 ns"}));
}

TEST(ThreadGroup, ARankThatNeverComesIsNamedAtTheDeadline) {
  const auto group = make_thread_group(3, within(50ms));
  EXPECT_TRUE(says(error_of([&] { group[1]->all_gather({}, "compare shapes"); }),
                   ErrorCode::deadline, {"ranks 0 and 2", "compare shapes", "raise the deadline"}));
  EXPECT_TRUE(says(error_of([&] { group[0]->all_gather({}, "compare shapes"); }),
                   ErrorCode::deadline, {"ranks 0 and 2"}))
      << "the first failure is the group's";
}

TEST(ThreadGroup, AnAbandonedRankIsNamedAtOnce) {
  // No deadline at all: only the departure can end this wait.
  const auto errors = run_threads(3, within(0ns), [&](const auto& group) {
    if (group->rank() == 2) return;
    group->all_gather({}, "compare shapes");
  });
  EXPECT_TRUE(says(errors[0], ErrorCode::peer_lost, {"rank 2 left the group", "compare shapes"}));
  EXPECT_TRUE(says(errors[1], ErrorCode::peer_lost, {"rank 2 left the group"}));
}

TEST(ThreadGroup, ARankThatLeavesAfterAMeetingSpoilsNobodysResult) {
  for (int n = 0; n < 100; ++n) {
    const auto errors = run_threads(
        4, within(0ns), [](const auto& group) { group->all_gather({}, "meet and leave"); });
    for (int rank = 0; rank < 4; ++rank) ASSERT_FALSE(errors[rank]) << rank;
  }
}

TEST(ThreadGroup, LostSaysWhoLeft) {
  auto group = make_thread_group(2, {});
  EXPECT_FALSE(group[0]->lost(1));
  group[1].reset();
  EXPECT_EQ(group[0]->lost(1), "rank 1 left the group");
  EXPECT_FALSE(group[0]->lost(0));
}

TEST(ThreadGroup, UnequalSizesAreAMismatchOnEveryRank) {
  const auto errors = run_threads(
      2, {}, [](const auto& group) { group->allocate(group->rank() == 0 ? 4096 : 8192); });
  for (const auto& error : errors) {
    EXPECT_TRUE(says(error, ErrorCode::mismatch, {"rank 0", "4096", "rank 1", "8192"}));
  }
}

TEST(ThreadGroup, MoreThanTheHostHasIsRefusedOnEveryRank) {
  std::atomic<int> calls{0};
  const auto errors = run_threads(
      2, {}, [](const auto& group) { group->allocate(600); },
      [&calls] {
        return HostMemory{calls++ == 0 ? 1199 : 5000, "a test"};
      });
  for (const auto& error : errors) {
    EXPECT_TRUE(says(error, ErrorCode::out_of_memory, {"600", "1199", "a test", "max_tokens"}));
  }
}

TEST(ThreadGroup, AnAddressSpaceThatIsTooSmallIsANamedError) {
  const auto errors = run_threads(
      2, {}, [](const auto& group) { group->allocate(std::int64_t{1} << 60); },
      [] {
        return HostMemory{std::int64_t{1} << 62, "a test"};
      });
  for (const auto& error : errors) {
    EXPECT_TRUE(says(error, ErrorCode::out_of_memory, {"1152921504606846976"}));
  }
}

TEST(ThreadGroup, NonsenseArgumentsAreRefused) {
  EXPECT_TRUE(says(error_of([] { make_thread_group(0, {}); }), ErrorCode::invalid_argument,
                   {"at least 1", "got 0"}));
  EXPECT_TRUE(says(error_of([] { make_thread_group(1, within(-1s)); }), ErrorCode::invalid_argument,
                   {"deadline"}));
  EXPECT_TRUE(says(error_of([] { make_thread_group(1, {})[0]->allocate(0); }),
                   ErrorCode::invalid_argument, {"0 bytes"}));
}

}  // namespace
}  // namespace megamoe::testing_symmetric
