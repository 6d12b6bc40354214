// Ranks as processes: results, first causes, deaths.
#include "cli/rank_processes.hpp"

#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "megamoe/megamoe.hpp"

#include "cli/layer_source.hpp"
#include "support/engine_group.hpp"
#include "support/host_state.hpp"

namespace megamoe::cli {
namespace {

TEST(RankProcesses, BringBackReportsAndPayloadsInRankOrder) {
  const auto outcomes =
      run_ranks(3, {4, 0, 8}, [](std::int64_t rank, std::span<std::byte> payload) {
        std::memset(payload.data(), static_cast<int>(rank) + 1, payload.size());
        return "rank " + std::to_string(rank);
      });
  ASSERT_EQ(outcomes.size(), 3u);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcomes[rank].report, "rank " + std::to_string(rank));
    for (std::byte value : outcomes[rank].payload)
      EXPECT_EQ(static_cast<std::size_t>(value), rank + 1);
  }
  EXPECT_EQ(outcomes[2].payload.size(), 8u);
}

TEST(RankProcesses, ARanksOwnErrorComesBeforeThoseThatFollowIt) {
  try {
    run_ranks(3, {0, 0, 0}, [](std::int64_t rank, std::span<std::byte>) -> std::string {
      throw Error(rank == 2 ? ErrorCode::format : ErrorCode::aborted,
                  "of rank " + std::to_string(rank));
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::format);
    EXPECT_STREQ(error.what(), "of rank 2");
  }
}

TEST(RankProcesses, ARankThatLeavesWithoutAResultIsNamed) {
  try {
    run_ranks(2, {0, 0}, [](std::int64_t rank, std::span<std::byte>) -> std::string {
      if (rank == 1) _exit(7);
      return "";
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 ended with exit code 7"), std::string::npos)
        << error.what();
  }
}

/// What run_ranks throws when ranks may stop or hang; "" for nothing.
std::string error_of_ranks(std::int64_t ranks, const std::function<std::string(std::int64_t)>& work,
                           std::chrono::nanoseconds deadline) {
  try {
    run_ranks(ranks, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0),
              [&](std::int64_t rank, std::span<std::byte>) { return work(rank); },
              {.deadline = deadline});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string stop_here() {
  raise(SIGSTOP);
  return "";
}

TEST(RankProcesses, AStoppedRankIsKilledAndNamedBesideWhatTheOthersSay) {
  const std::string message = error_of_ranks(
      3,
      [](std::int64_t rank) -> std::string {
        if (rank == 1) return stop_here();
        throw Error(ErrorCode::deadline, "rank " + std::to_string(rank) + " waited for rank 1");
      },
      std::chrono::milliseconds(100));
  for (const char* part : {"rank 0 waited for rank 1; ", "rank 1 was stopped by signal 19",
                           "did not go on within 5.1 s", "it was killed"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(RankProcesses, AStoppedRankIsKilledThoughNobodyWaitsForIt) {
  EXPECT_NE(error_of_ranks(
                1, [](std::int64_t) { return stop_here(); }, std::chrono::milliseconds(1))
                .find("rank 0 was stopped"),
            std::string::npos);
}

TEST(RankProcesses, ARankThatGoesOnAfterAStopIsNoFailure) {
  EXPECT_EQ(error_of_ranks(
                2,
                [](std::int64_t rank) -> std::string {
                  if (rank == 1) return "";
                  const pid_t self = getpid();
                  const pid_t waker = fork();
                  if (waker == 0) {
                    usleep(300'000);
                    kill(self, SIGCONT);
                    _exit(0);
                  }
                  return stop_here();
                },
                std::chrono::milliseconds(100)),
            "");
}

TEST(RankProcesses, ARankThatHangsAfterAnotherFailedIsKilledAndNamed) {
  const std::string message = error_of_ranks(
      2,
      [](std::int64_t rank) -> std::string {
        if (rank == 0) throw Error(ErrorCode::format, "of rank 0");
        for (;;) pause();
      },
      std::chrono::milliseconds(1));
  EXPECT_NE(message.find("of rank 0; rank 1 did not end after that within"), std::string::npos)
      << message;
}

/// Where in a call a rank kills itself: all the others must notice, name it, and leave nothing
/// behind.
class KilledRank : public ::testing::TestWithParam<EnginePhase> {};

TEST_P(KilledRank, IsNamedByTheOthersWithinTheDeadlineAndLeavesNothing) {
  const EnginePhase phase = GetParam();
  // Survivors write what they saw into their payload: run_ranks itself reports the killed rank.
  const std::string rendezvous =
      "killed-" + std::to_string(getpid()) + "-" + std::to_string(static_cast<int>(phase));
  const test::HostState before = test::host_state(rendezvous);
  const auto begin = std::chrono::steady_clock::now();
  std::string message;
  try {
    run_ranks(3, {0, 0, 0}, [&](std::int64_t rank, std::span<std::byte>) -> std::string {
      const LayerConfig config = test::small_config();
      const auto communicator =
          join_process_group({.rank = static_cast<int>(rank),
                              .ranks = 3,
                              .rendezvous = rendezvous,
                              .group = {.deadline = std::chrono::seconds(20)}});
      const Plan plan = make_plan(
          config, 3, {.cores = 2, .instruction_set = best_instruction_set()}, {.workers = 2});
      PackedWeights weights(plan.shape);
      weights.pack(synthetic_weights(config, 7, 0, config.experts), rank);
      auto arena = std::make_shared<Arena>(communicator, plan.shape);
      Engine engine(plan, arena, std::make_shared<WorkerPool>(plan.threads()), weights, 1,
                    [&](EnginePhase now, std::int64_t) {
                      if (rank == 1 && now == phase) kill(getpid(), SIGKILL);
                    });
      const SyntheticInput input = synthetic_input(config, 7, rank, 24);
      std::copy(input.experts.begin(), input.experts.end(),
                arena->mine<std::int64_t>(RegionId::expert_ids));
      std::copy(input.weights.begin(), input.weights.end(),
                arena->mine<float>(RegionId::expert_weights));
      std::vector<BFloat16> y(input.x.size());
      try {
        engine.forward({.tokens = 24, .x_bf16 = input.x.data(), .y = y.data()});
      } catch (const Error& error) {
        if (std::string(error.what()).find("rank 1") == std::string::npos) {
          throw Error(ErrorCode::internal,
                      std::string("the survivor does not name rank 1: ") + error.what());
        }
        return "noticed";
      }
      // Killed in its combine, rank 1 has no part in what the others still do.
      if (phase == EnginePhase::combine) return "done";
      throw Error(ErrorCode::internal, "the survivor finished the call");
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("rank 1 was killed by signal 9"), std::string::npos) << message;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(test::difference(before, test::host_state(rendezvous)), "");
}

INSTANTIATE_TEST_SUITE_P(
    Phases, KilledRank,
    ::testing::Values(EnginePhase::begin, EnginePhase::count, EnginePhase::scatter,
                      EnginePhase::barrier_a, EnginePhase::pull, EnginePhase::gemm1,
                      EnginePhase::gemm2, EnginePhase::barrier_b, EnginePhase::combine),
    [](const auto& info) { return "phase" + std::to_string(static_cast<int>(info.param)); });

}  // namespace
}  // namespace megamoe::cli
