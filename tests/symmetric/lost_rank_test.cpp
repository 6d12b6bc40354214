// Ranks that die, leave, or seem to.

#include "symmetric/processes.hpp"

namespace megamoe::testing_symmetric {
namespace {

/// "rank 2 (process 4711) died" as far as the process is known from outside.
std::string death_of(int rank, pid_t process) {
  return fmt::format("rank {} (process {}) died", rank, process);
}

/// A group of three without any deadline, so that only noticing can end a wait.
struct Trio {
  explicit Trio(const ProcessBody& body) {
    for (int rank = 0; rank < 3; ++rank) {
      children.emplace_back([&, rank] {
        const auto group = join_process_group(member(rank, 3, rendezvous, 0s));
        return body(*group);
      });
      processes.push_back(children.back().process());
    }
    for (Child& child : children) outcomes.push_back(child.reap());
  }
  std::string rendezvous = fresh_rendezvous();
  std::vector<Child> children;
  std::vector<pid_t> processes;
  std::vector<Outcome> outcomes;
};

TEST(LostRank, KilledWhileOthersWaitInTheBarrierIsNamedAndLeavesNothing) {
  const auto before = traces();
  const Trio trio([](Communicator& group) {
    Control control(group);
    control.barrier.arrive_and_wait({1, 1}, control.waiter, control.faults);
    if (group.rank() == 2) {
      std::this_thread::sleep_for(50ms);
      die();
    }
    control.barrier.arrive_and_wait({1, 2}, control.waiter, control.faults);
    return "";
  });
  EXPECT_EQ(trio.outcomes[2].signal, SIGKILL);
  const std::string death = death_of(2, trio.processes[2]);
  int lost = 0;
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(trio.outcomes[rank].error) << rank;
    lost += trio.outcomes[rank].error->code() == ErrorCode::peer_lost;
    const std::string text = trio.outcomes[rank].error->what();
    EXPECT_NE(text.find(death), std::string::npos) << text;
    EXPECT_NE(text.find("barrier A"), std::string::npos) << text;
  }
  EXPECT_EQ(lost, 1) << "one rank raised it, the other names the first cause";
  EXPECT_EQ(traces(), before);
}

TEST(LostRank, AllKilledAtOnceLeaveNothing) {
  const auto before = traces();
  const Trio trio([](Communicator& group) -> std::string {
    const auto memory = group.allocate(1 << 20);
    die();
  });
  for (const Outcome& outcome : trio.outcomes) EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(traces(), before);
}

TEST(LostRank, Rank0KilledWhileItListensLeavesNothing) {
  const auto before = traces();
  Child child([rendezvous = fresh_rendezvous()]() -> std::string {
    join_process_group(member(0, 2, rendezvous, 60s));
    return "joined";
  });
  while (traces() == before) std::this_thread::yield();
  kill(child.process(), SIGKILL);
  EXPECT_EQ(child.reap().signal, SIGKILL);
  EXPECT_EQ(traces(), before);
}

TEST(LostRank, KilledWhileOthersGatherIsNamedOnEveryRank) {
  for (const int victim : {0, 1}) {
    const Trio trio([victim](Communicator& group) {
      if (group.rank() == victim) {
        std::this_thread::sleep_for(50ms);
        die();
      }
      group.all_gather({}, "compare shapes");
      return "";
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_TRUE(says(trio.outcomes[rank].error, ErrorCode::peer_lost,
                       {death_of(victim, trio.processes[victim]), "compare shapes"}))
          << rank;
    }
  }
}

TEST(LostRank, OneThatLeavesInOrderIsToldApart) {
  const Trio trio([](Communicator& group) {
    if (group.rank() == 1) return "";
    group.all_gather({}, "compare shapes");
    return "";
  });
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(says(trio.outcomes[rank].error, ErrorCode::peer_lost, {"rank 1 left the group"}));
  }
}

TEST(LostRank, OneThatLeavesAfterAMeetingSpoilsNobodysResult) {
  for (int n = 0; n < 20; ++n) {
    const Trio trio([](Communicator& group) {
      group.all_gather({}, "meet and leave");
      return "met";
    });
    ASSERT_TRUE(all_returned(trio.outcomes, "met"));
  }
}

TEST(LostRank, AForkedCopyThatHoldsTheConnectionsOpenHidesNoDeath) {
  const std::string rendezvous = fresh_rendezvous();
  Child rank_0([&] {
    const auto group = join_process_group(member(0, 2, rendezvous, 30s));
    group->all_gather({}, "compare shapes");
    return "";
  });
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child rank_1([&]() -> std::string {
    const auto group = join_process_group(member(1, 2, rendezvous, 30s));
    const pid_t copy = fork();
    if (copy == 0) {
      for (int file = 0; file < 3; ++file) close(file);
      std::this_thread::sleep_for(60s);
      _exit(0);
    }
    if (write(ends[1], &copy, sizeof(copy)) != sizeof(copy)) return "no pipe";
    die();
  });
  pid_t copy = 0;
  ASSERT_EQ(read(ends[0], &copy, sizeof(copy)), static_cast<ssize_t>(sizeof(copy)));
  close(ends[0]);
  close(ends[1]);
  EXPECT_TRUE(says(rank_0.reap().error, ErrorCode::peer_lost, {death_of(1, rank_1.process())}));
  kill(copy, SIGKILL);
}

TEST(LostRank, AForkedCopyThatDropsItsHandleLeavesNothing) {
  const auto outcomes = run_processes(2, 20s, [](Communicator& group) -> std::string {
    auto memory = group.allocate(4096);
    group.all_gather({}, "begin");
    if (group.rank() == 1) {
      const pid_t copy = fork();
      if (copy == 0) {
        memory.reset();
        group.~Communicator();
        _exit(0);
      }
      waitpid(copy, nullptr, 0);
    }
    group.all_gather({}, "see who is there");
    const auto lost = group.lost(1 - group.rank());
    group.all_gather({}, "end");
    return lost.value_or("all there");
  });
  EXPECT_TRUE(all_returned(outcomes, "all there"));
}

}  // namespace
}  // namespace megamoe::testing_symmetric
