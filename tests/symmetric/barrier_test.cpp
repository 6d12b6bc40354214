#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

TEST(GroupBarrier, OrdersPlainDataOfFourThreadsOverAThousandRounds) {
  const auto errors = run_threads(4, {}, [](const auto& group) {
    Control control(*group);
    EXPECT_EQ(exchange_rounds(*group, control, 1000), std::nullopt);
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(errors[rank]) << rank;
}

TEST(GroupBarrier, ServesAGroupOfOne) {
  const auto errors = run_threads(1, {}, [](const auto& group) {
    Control control(*group);
    EXPECT_EQ(exchange_rounds(*group, control, 10), std::nullopt);
  });
  EXPECT_FALSE(errors[0]);
}

TEST(GroupBarrier, CallNumbersWrapAround) {
  const auto errors = run_threads(2, {}, [](const auto& group) {
    Control control(*group);
    control.words(2)[group->rank()][0] = 0xFFFFFFFDu;
    control.words(2)[group->rank()][1] = 0xFFFFFFFDu;
    group->all_gather({}, "set the words");
    for (std::uint32_t call = 0xFFFFFFFEu; call != 3; ++call) {
      control.barrier.arrive_and_wait({1, call}, control.waiter, control.faults);
    }
  });
  EXPECT_FALSE(errors[0]);
  EXPECT_FALSE(errors[1]);
}

TEST(GroupBarrier, ALateRankIsNamedWithWhatItLastCalled) {
  std::atomic<bool> gone{false};
  const auto errors = run_threads(3, {100ms}, [&](const auto& group) {
    Control control(*group);
    control.barrier.arrive_and_wait({4, 1}, control.waiter, control.faults);
    while (group->rank() == 2 && !gone) std::this_thread::yield();
    if (group->rank() != 2) {
      const auto error = error_of([&] {
        control.barrier.arrive_and_wait({5, 2}, control.waiter, control.faults);
      });
      gone = true;
      if (error) throw *error;
    }
  });
  const bool first = errors[0]->code() == ErrorCode::deadline;
  EXPECT_TRUE(says(errors[first ? 0 : 1], ErrorCode::deadline,
                   {"barrier A", "arrival of rank 2", "wanted call 2 of layer 5",
                    "seen call 1 of layer 4", "rank 2 is late or stuck"}));
  EXPECT_TRUE(says(errors[first ? 1 : 0], ErrorCode::aborted, {"gave up", "arrival of rank 2"}));
}

TEST(GroupBarrier, ARankThatLeavesEndsTheWaitOfAllOthers) {
  const auto errors = run_threads(4, {0ns}, [](const auto& group) {
    Control control(*group);
    if (group->rank() == 3) return;
    control.barrier.arrive_and_wait({1, 1}, control.waiter, control.faults);
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(errors[rank]) << rank;
    EXPECT_NE(std::string(errors[rank]->what()).find("rank 3 left the group"), std::string::npos)
        << errors[rank]->what();
  }
}

TEST(GroupBarrier, RanksThatPassAndLeaveSpoilNobodysBarrier) {
  for (int n = 0; n < 50; ++n) {
    const auto errors = run_threads(4, {0ns}, [](const auto& group) {
      Control control(*group);
      control.barrier.arrive_and_wait({1, 1}, control.waiter, control.faults);
    });
    for (int rank = 0; rank < 4; ++rank) ASSERT_FALSE(errors[rank]) << rank;
  }
}

TEST(GroupBarrier, ARankThatArrivedAndLeftIsNoFaultForThoseWhoWaitForALaterOne) {
  const auto errors = run_threads(3, {0ns}, [](const auto& group) {
    Control control(*group);
    if (group->rank() == 1) {
      // As if rank 0 had told this rank already that it is there, and the others not yet.
      for (std::uint64_t* words : control.words(3)) {
        std::atomic_ref(words[1]).store(std::uint64_t{1} << 32 | 1, std::memory_order_release);
      }
      return;
    }
    // Long enough for rank 2 to ask several times who is lost.
    if (group->rank() == 0) std::this_thread::sleep_for(60ms);
    control.barrier.arrive_and_wait({1, 1}, control.waiter, control.faults);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(errors[rank]) << rank << ": " << errors[rank]->what();
  }
}

TEST(GroupBarrier, AnotherLayerInTheSameCallIsAMismatchThatNamesBoth) {
  const auto errors = run_threads(3, {}, [](const auto& group) {
    Control control(*group);
    const std::uint32_t layer = group->rank() == 2 ? 3 : 1;
    for (std::uint32_t call = 1; call <= 9; ++call) {
      control.barrier.arrive_and_wait({call < 9 ? 1 : layer, call}, control.waiter, control.faults);
    }
  });
  int mismatches = 0;
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    mismatches += error->code() == ErrorCode::mismatch;
    const std::string text = error->what();
    EXPECT_NE(text.find("called layer 1"), std::string::npos) << text;
    EXPECT_NE(text.find("called layer 3"), std::string::npos) << text;
    EXPECT_NE(text.find("call 9 of the group"), std::string::npos) << text;
    EXPECT_NE(text.find("same order"), std::string::npos) << text;
  }
  EXPECT_EQ(mismatches, 1);
}

}  // namespace
}  // namespace megamoe::testing_symmetric
