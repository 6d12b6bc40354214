#include <sys/resource.h>

#include "symmetric/processes.hpp"

namespace megamoe::testing_symmetric {
namespace {

TEST(ProcessGroup, GathersPayloadsOfUnequalSizesInRankOrder) {
  const auto outcomes = run_processes(3, 20s, [](Communicator& group) {
    std::string seen;
    const auto all = group.all_gather(bytes_of(std::string(group.rank() * 500000, 'a')), "compare");
    for (const auto& payload : all) seen += std::to_string(payload.size()) + " ";
    for (const auto& payload :
         group.all_gather(bytes_of(std::to_string(group.rank())), "compare")) {
      seen += text_of(payload) + " ";
    }
    return seen;
  });
  EXPECT_TRUE(all_returned(outcomes, "0 500000 1000000 0 1 2 "));
}

TEST(ProcessGroup, ServesAGroupOfOne) {
  EXPECT_TRUE(all_returned(run_processes(1, 20s,
                                         [](Communicator& group) {
                                           const auto memory = group.allocate(4096);
                                           return text_of(group.all_gather(bytes_of("x"), "y")[0]);
                                         }),
                           "x"));
}

TEST(ProcessGroup, PartsAreZeroFilledAndVisibleBothWays) {
  constexpr std::int64_t kBytes = 10000;
  const auto outcomes = run_processes(3, 20s, [](Communicator& group) -> std::string {
    const auto memory = group.allocate(kBytes);
    if (memory->bytes() != kBytes) return "size";
    for (std::int64_t n = 0; n < kBytes; ++n) {
      if (memory->base(group.rank())[n] != std::byte{0}) return "not zero";
    }
    group.all_gather({}, "see zeros");
    for (int to = 0; to < 3; ++to) memory->base(to)[group.rank()] = std::byte(7 + group.rank());
    group.all_gather({}, "write");
    for (int at = 0; at < 3; ++at) {
      for (int from = 0; from < 3; ++from) {
        if (memory->base(at)[from] != std::byte(7 + from)) return "not written";
      }
    }
    return "ok";
  });
  EXPECT_TRUE(all_returned(outcomes, "ok"));
}

TEST(ProcessGroup, TheBarrierOrdersPlainDataOfFourProcessesOverAThousandRounds) {
  const auto outcomes = run_processes(4, 20s, [](Communicator& group) {
    Control control(group);
    return exchange_rounds(group, control, 1000).value_or("ok");
  });
  EXPECT_TRUE(all_returned(outcomes, "ok"));
}

TEST(ProcessGroup, APayloadBeyondTheLimitIsRefusedAndTheGroupGoesOn) {
  const auto outcomes = run_processes(2, 20s, [](Communicator& group) -> std::string {
    const std::vector<std::byte> much(kMaxPayloadBytes + 1);
    const auto error = error_of([&] { group.all_gather(much, "boast"); });
    group.all_gather(std::span(much).first(kMaxPayloadBytes), "be modest");
    return error ? error->what() : "accepted";
  });
  EXPECT_TRUE(all_returned(
      outcomes, "a rank contributes at most 1048576 bytes to an all-gather, got 1048577"));
}

TEST(ProcessGroup, UnequalSizesAreAMismatchOnEveryRank) {
  const auto outcomes = run_processes(2, 20s, [](Communicator& group) {
    group.allocate(group.rank() == 0 ? 4096 : 8192);
    return "";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(says(outcome.error, ErrorCode::mismatch, {"rank 0", "4096", "rank 1", "8192"}));
  }
}

TEST(ProcessGroup, DifferentCallsAreAMismatchOnEveryRank) {
  const auto outcomes = run_processes(3, 20s, [](Communicator& group) {
    if (group.rank() == 2) group.allocate(4096);
    group.all_gather({}, "compare shapes");
    return "";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(says(outcome.error, ErrorCode::mismatch,
                     {"rank 2 came to ask for symmetric memory", "compare shapes"}));
  }
}

TEST(ProcessGroup, MoreThanTheHostHasIsRefusedOnEveryRankAndTheGroupGoesOn) {
  const auto outcomes = run_processes(
      2, 20s,
      [](Communicator& group) -> std::string {
        const auto error = error_of([&] { group.allocate(10000); });
        if (!says(error, ErrorCode::out_of_memory, {"2 rank(s)", "10000", "19999", "a test"})) {
          return error ? error->what() : "allocated";
        }
        return group.allocate(9000)->bytes() == 9000 ? "ok" : "size";
      },
      [] {
        return HostMemory{19999, "a test"};
      });
  EXPECT_TRUE(all_returned(outcomes, "ok"));
}

TEST(ProcessGroup, PrivateMemoryThatTheHostLacksIsRefusedOnEveryRankAndTheGroupGoesOn) {
  const auto outcomes = run_processes(
      2, 20s,
      [](Communicator& group) -> std::string {
        const std::int64_t bytes = group.rank() == 0 ? 9000 : 11000;
        const auto error =
            error_of([&] { check_private_memory(group, bytes, "packed weights", "take fewer"); });
        if (!says(error, ErrorCode::out_of_memory, {"packed weights", "2 rank(s)", "a test"})) {
          return error ? error->what() : "accepted";
        }
        check_private_memory(group, 9000, "packed weights", "take fewer");
        return "ok";
      },
      [] {
        return HostMemory{19999, "a test"};
      });
  EXPECT_TRUE(all_returned(outcomes, "ok"));
}

TEST(ProcessGroup, ARankThatCannotMakeItsPartFailsTheAllocationOnEveryRank) {
  const auto outcomes = run_processes(2, 20s, [](Communicator& group) {
    const rlimit small{8192, 8192};
    if (group.rank() == 1) setrlimit(RLIMIT_FSIZE, &small);
    group.allocate(16384);
    return "";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(
        says(outcome.error, ErrorCode::out_of_memory, {"rank 1", "16384", "8192", "ulimit -f"}));
  }
}

TEST(ProcessGroup, ALateRankIsNamedOnEveryRankAtTheDeadline) {
  const auto outcomes = run_processes(3, 400ms, [](Communicator& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(900ms);
    group.all_gather({}, "compare shapes");
    return "";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(says(outcome.error, ErrorCode::deadline,
                     {"rank 1 did not come", "0.4 s", "compare shapes", "raise the deadline"}));
  }
}

TEST(ProcessGroup, ALateRank0IsNamedByTheOthers) {
  const auto outcomes = run_processes(3, 400ms, [](Communicator& group) {
    if (group.rank() == 0) std::this_thread::sleep_for(900ms);
    group.all_gather({}, "compare shapes");
    return "";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(says(outcome.error, ErrorCode::deadline, {"rank 0 did not come"}));
  }
}

TEST(ProcessGroup, TheFirstFaultIsWhatEveryRankThrows) {
  const auto outcomes = run_processes(3, 20s, [](Communicator& group) {
    Control control(group);
    if (group.rank() == 1) {
      control.faults.raise(ErrorCode::internal, "worker 3 ran out of luck");
      control.waiter.check();
    }
    control.barrier.arrive_and_wait({1, 1}, control.waiter, control.faults);
    return "";
  });
  EXPECT_TRUE(says(outcomes[1].error, ErrorCode::internal, {"worker 3 ran out of luck"}));
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(says(outcomes[rank].error, ErrorCode::aborted, {}));
    EXPECT_STREQ(outcomes[rank].error->what(),
                 "rank 1 gave up the group: worker 3 ran out of luck");
  }
}

TEST(ProcessGroup, TwoHundredGroupsLeaveDescriptorsAndMappingsFlat) {
  const std::string rendezvous = fresh_rendezvous();
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&]() -> std::string {
      std::size_t files = 0;
      for (int cycle = 0; cycle < 200; ++cycle) {
        Control control(*join_process_group(member(rank, 2, rendezvous)));
        if (count_mappings_of("megamoe") != 2) return "one mapping per rank was expected";
        if (cycle == 0) files = count_entries("/proc/self/fd");
        if (count_entries("/proc/self/fd") != files) return "descriptors grew";
      }
      return count_mappings_of("megamoe") == 0 ? "flat" : "mappings grew";
    });
  }
  EXPECT_EQ(children[0].reap().text, "flat");
  EXPECT_EQ(children[1].reap().text, "flat");
}

TEST(ThreadGroup, TwoHundredGroupsLeaveDescriptorsAndMappingsFlat) {
  constexpr std::int64_t kPartBytes = 16 << 20;
  std::size_t files = 0;
  std::int64_t mapped = 0;
  for (int cycle = 0; cycle < 200; ++cycle) {
    run_threads(3, {}, [](const auto& group) { group->allocate(kPartBytes); });
    if (cycle == 20) files = count_entries("/proc/self/fd");
    if (cycle == 20) mapped = mapped_bytes();
  }
  EXPECT_EQ(count_entries("/proc/self/fd"), files);
  // The allocator may keep some; a part lost in each cycle would be 2880 MiB.
  EXPECT_LT(mapped_bytes(), mapped + 100 * kPartBytes);
}

}  // namespace
}  // namespace megamoe::testing_symmetric
