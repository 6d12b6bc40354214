// Timing must not show: many calls, delayed ranks, the same bits. Run under ThreadSanitizer too.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

/// A layer whose calls are all protocol and little arithmetic.
LayerConfig tiny_config() {
  LayerConfig config = small_config();
  config.hidden = 32;
  config.intermediate = 160;  // two groups of intermediates: two readiness bits
  config.max_tokens = 24;
  return config;
}

TEST(EngineRace, AThousandCallsWithRandomTokensGiveTheBitsOfTheFirst) {
  EngineGroup group(
      {.config = tiny_config(), .ranks = 4, .plan = {.workers = 2, .block_rows = 16}});
  std::mt19937 random(11);
  constexpr int kKinds = 10;
  std::vector<std::vector<Input>> inputs;
  std::vector<GroupResult> expected;
  for (int kind = 0; kind < kKinds; ++kind) {
    std::vector<std::int64_t> tokens;
    for (int rank = 0; rank < 4; ++rank) {
      tokens.push_back(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 25));
    }
    inputs.push_back(group.inputs(tokens, static_cast<std::uint64_t>(kind)));
    expected.push_back(group.call(inputs.back(), Execution::staged));
    expected.back().check();
    ASSERT_EQ(group.compare_with_reference(inputs.back(), expected.back()), "");
  }
  for (int call = 0; call < 1000; ++call) {
    const std::size_t kind = random() % kKinds;
    const Execution execution = kExecutions[random() % 3];
    if (call % 50 == 0) group.poison();
    const GroupResult result = group.call(inputs[kind], execution);
    result.check();
    ASSERT_EQ(difference(expected[kind], result, group.config().hidden), "") << "call " << call;
  }
}

TEST(EngineRace, ADelayedRankChangesNoBits) {
  std::atomic<int> slow_rank{-1};
  std::atomic<int> slow_phase{0};
  EngineGroup group({.config = tiny_config(),
                     .ranks = 3,
                     .plan = {.workers = 2, .block_rows = 16},
                     .hook = [&](int rank, EnginePhase phase, std::int64_t worker) {
                       if (rank != slow_rank || static_cast<int>(phase) != slow_phase ||
                           worker != 0)
                         return;
                       slow_rank = -1;
                       std::this_thread::sleep_for(std::chrono::milliseconds(100));
                     }});
  const auto inputs = group.inputs({24, 7, 19});
  const GroupResult expected = group.call(inputs, Execution::fused);
  expected.check();
  for (int call = 0; call < 100; ++call) {
    slow_rank = call % 3;
    slow_phase = call / 3 % 9;
    const GroupResult result = group.call(inputs, kExecutions[call % 3]);
    result.check();
    ASSERT_EQ(difference(expected, result, group.config().hidden), "") << "call " << call;
  }
}

TEST(EngineRace, AnErrorInOneWorkerEndsTheCallOnEveryRankWithItsCause) {
  std::atomic<bool> armed{false};
  for (Execution execution : kExecutions) {
    EngineGroup fresh({.config = tiny_config(),
                       .ranks = 3,
                       .hook = [&](int rank, EnginePhase phase, std::int64_t) {
                         if (rank == 1 && phase == EnginePhase::gemm1 && armed.exchange(false)) {
                           throw std::runtime_error("the hook's own error");
                         }
                       }});
    armed = true;
    const GroupResult result = fresh.call(fresh.inputs({24, 24, 24}), execution);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_NE(result.message(rank).find("the hook's own error"), std::string::npos)
          << "rank " << rank << ": " << result.message(rank);
      for (const BFloat16 value : result.y[static_cast<std::size_t>(rank)]) {
        ASSERT_EQ(value.bits & 0x7f80, 0x7f80) << "y is not NaN after an aborted call";
      }
    }
    const GroupResult refused = fresh.call(fresh.inputs({1, 1, 1}), execution);
    for (int rank = 0; rank < 3; ++rank) EXPECT_NE(refused.message(rank), "") << "rank " << rank;
  }
}

}  // namespace
}  // namespace megamoe::test
