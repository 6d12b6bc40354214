#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

constexpr WaitName kBlock{"GEMM 1", "block arrival", 5};
constexpr WaitName kPeer{"barrier A", "arrival of rank", 1, WaitsFor::peers};

Observation never() {
  return {false, 3, 4};
}

/// Rank 0 of two, whose rank 1 does nothing.
struct Lonely {
  explicit Lonely(std::chrono::nanoseconds deadline)
      : group(make_thread_group(2, {deadline})),
        faults(0, {&regions[0], &regions[1]}),
        waiter(*group[0], faults) {}
  std::vector<std::shared_ptr<Communicator>> group;
  FaultRegion regions[2] = {};
  FaultBoard faults;
  Waiter waiter;
};

TEST(Waiter, ReturnsWhenTheLookSaysDone) {
  Lonely rank(0ns);
  int looks = 0;
  rank.waiter.until(kBlock, [&] { return Observation{++looks == 5000, 0, 0}; });
  EXPECT_EQ(looks, 5000);
}

TEST(Waiter, ExpiryNamesRankRoleSignalIndexSeenAndWantedAndTellsTheGroup) {
  Lonely rank(30ms);
  EXPECT_TRUE(says(error_of([&] { rank.waiter.until(kBlock, never); }), ErrorCode::deadline,
                   {"rank 0", "GEMM 1", "'block arrival' [5]", "wanted 4", "seen 3", "raise"}));
  EXPECT_TRUE(rank.faults.raised());
  EXPECT_EQ(rank.regions[1].abort, 1u);
}

TEST(Waiter, TheDeadlineCountsFromTheLaterPoint) {
  Lonely rank(1ns);
  const auto later = Waiter::Clock::now() + 50ms;
  EXPECT_TRUE(says(error_of([&] { rank.waiter.until(kBlock, never, later); }), ErrorCode::deadline,
                   {"waited "}));
  EXPECT_GE(Waiter::Clock::now(), later);
}

TEST(Waiter, AFaultEndsEveryWait) {
  Lonely rank(0ns);
  std::thread other([&] {
    FaultBoard(1, {&rank.regions[0], &rank.regions[1]}).raise(ErrorCode::internal, "the cause");
  });
  EXPECT_TRUE(says(error_of([&] { rank.waiter.until(kBlock, never); }), ErrorCode::aborted,
                   {"rank 1 gave up the group: the cause"}));
  other.join();
  EXPECT_TRUE(says(error_of([&] { rank.waiter.check(); }), ErrorCode::aborted, {"the cause"}));
}

TEST(Waiter, AWaitForPeersNoticesThatOneLeft) {
  Lonely rank(0ns);
  rank.group[1].reset();
  EXPECT_TRUE(says(error_of([&] { rank.waiter.until(kPeer, never); }), ErrorCode::peer_lost,
                   {"rank 1 left the group", "barrier A", "rank 0"}));
}

TEST(Waiter, ALostPeerIsNamedRatherThanADeadlineThatPassedAtTheSameTime) {
  Lonely rank(1ns);
  rank.group[1].reset();
  EXPECT_TRUE(says(error_of([&] { rank.waiter.until(kPeer, never); }), ErrorCode::peer_lost,
                   {"rank 1 left the group"}));
}

TEST(Waiter, AWaitForOwnWorkersDoesNotMindThatAPeerIsDoneAndLeft) {
  Lonely rank(0ns);
  rank.group[1].reset();
  const auto start = Waiter::Clock::now();
  rank.waiter.until(kBlock, [&] { return Observation{Waiter::Clock::now() - start > 40ms, 0, 0}; });
  EXPECT_FALSE(rank.faults.raised());
}

/// A peer that leaves right after a look that failed, having signalled: as a rank does that passes
/// the last barrier and ends.
class DepartingGroup final : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  std::chrono::nanoseconds deadline() const override { return 0ns; }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte>,
                                                 std::string_view) override {
    return {};
  }
  std::unique_ptr<SymmetricMemory> allocate(std::int64_t) override { return nullptr; }
  std::optional<std::string> lost(int rank) const override {
    if (rank == 0) return std::nullopt;
    signalled = true;
    return "rank 1 left the group";
  }
  HostMemory host_memory() const override { return {}; }
  mutable bool signalled = false;
};

TEST(Waiter, APeerThatSignalsAndThenLeavesIsNoFault) {
  const DepartingGroup group;
  FaultRegion regions[2] = {};
  FaultBoard faults(0, {&regions[0], &regions[1]});
  const Waiter waiter(group, faults);
  waiter.until(kPeer, [&] { return Observation{group.signalled, 0, 1}; });
  EXPECT_TRUE(group.signalled);
  EXPECT_FALSE(faults.raised());
}

}  // namespace
}  // namespace megamoe::testing_symmetric
