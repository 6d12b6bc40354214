#include "schedule/walk.hpp"

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "schedule/walk_cases.hpp"

namespace megamoe {
namespace {

using test::kTaskSets;
using test::Pool;
using test::pool_of;
using test::random_pool;

constexpr TaskKind kKinds[] = {TaskKind::pull, TaskKind::gemm1, TaskKind::gemm2};

/// What tells a task from others; its expert follows from its block.
using Key = std::tuple<TaskKind, std::int64_t, std::int64_t>;
Key key_of(const Task& task) {
  return {task.kind, task.block, task.part};
}

bool in_set(TaskKind kind, TaskSet set) {
  return set == TaskSet::all || (kind == TaskKind::gemm2) == (set == TaskSet::gemm2);
}

std::int64_t parts_of(TaskKind kind, const WalkShape& shape) {
  return kind == TaskKind::pull    ? shape.pull_parts
         : kind == TaskKind::gemm1 ? shape.gemm1_parts
                                   : shape.gemm2_parts;
}

std::set<Key> wanted_tasks(const Pool& pool, TaskSet set) {
  std::set<Key> all;
  for (TaskKind kind : kKinds) {
    if (!in_set(kind, set)) continue;
    for (std::int64_t block = 0; block < pool.blocks(); ++block) {
      for (std::int64_t part = 0; part < parts_of(kind, pool.shape); ++part) {
        all.insert({kind, block, part});
      }
    }
  }
  return all;
}

std::vector<Task> all_tasks(const Pool& pool, TaskSet set) {
  Walk walk = pool.walk(set);
  std::vector<Task> tasks;
  for (std::int64_t ticket = 0; ticket < walk.size(); ++ticket) tasks.push_back(walk.at(ticket));
  return tasks;
}

/// The order by its definition.
std::vector<Key> defined_order(const Pool& pool, TaskSet set) {
  std::vector<Key> order;
  const auto append = [&](TaskKind kind, std::int64_t wave) {
    if (!in_set(kind, set)) return;
    const std::int64_t per_wave = pool.shape.experts_per_wave;
    for (std::int64_t block = 0; block < pool.blocks(); ++block) {
      if (pool.expert_of(block) / per_wave != wave) continue;
      for (std::int64_t part = 0; part < parts_of(kind, pool.shape); ++part) {
        order.emplace_back(kind, block, part);
      }
    }
  };
  append(TaskKind::pull, 0);
  for (std::int64_t wave = 0; wave < pool.experts(); ++wave) {
    append(TaskKind::pull, wave + 1);
    append(TaskKind::gemm1, wave);
    append(TaskKind::gemm2, wave);
  }
  return order;
}

template <class Check>
void for_random_pools(int rounds, const Check& check) {
  std::mt19937_64 random(23);
  for (int round = 0; round < rounds; ++round) {
    const Pool pool = random_pool(random, round % 4);
    for (TaskSet set : kTaskSets) {
      check(pool, set, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

constexpr std::int64_t kTwoExperts[] = {0, 1, 2};
static_assert([] {
  Walk walk(kTwoExperts, 2, {.gemm1_parts = 2}, TaskSet::all);
  const Task last = walk.at(walk.size() - 1);
  return walk.size() == 8 && last.kind == TaskKind::gemm2 && last.expert == 1 && last.block == 1;
}());

TEST(Walk, EveryTaskIsDealtExactlyOnceInEverySet) {
  for_random_pools(400, [](const Pool& pool, TaskSet set, std::mt19937_64&) {
    std::set<Key> left = wanted_tasks(pool, set);
    ASSERT_EQ(pool.walk(set).size(), static_cast<std::int64_t>(left.size())) << text(pool);
    for (const Task& task : all_tasks(pool, set)) {
      ASSERT_EQ(left.erase(key_of(task)), 1u)
          << "kind " << static_cast<int>(task.kind) << " block " << task.block << " part "
          << task.part << " is dealt twice or is none; " << text(pool);
      ASSERT_EQ(task.expert, pool.expert_of(task.block)) << "block " << task.block << text(pool);
    }
    ASSERT_TRUE(left.empty()) << left.size() << " tasks are never dealt; " << text(pool);
  });
}

TEST(Walk, TheOrderIsPullsOneWaveAheadThenGemm1ThenGemm2) {
  for_random_pools(200, [](const Pool& pool, TaskSet set, std::mt19937_64&) {
    const std::vector<Key> wanted = defined_order(pool, set);
    const std::vector<Task> tasks = all_tasks(pool, set);
    ASSERT_EQ(tasks.size(), wanted.size());
    for (std::size_t ticket = 0; ticket < wanted.size(); ++ticket) {
      ASSERT_EQ(key_of(tasks[ticket]), wanted[ticket]) << "ticket " << ticket << "; " << text(pool);
    }
  });
}

TEST(Walk, OfABlockAllPullsPrecedeGemm1AndAllOfThatPrecedesGemm2) {
  for_random_pools(200, [](const Pool& pool, TaskSet set, std::mt19937_64&) {
    std::map<std::int64_t, std::array<std::int64_t, 3>> dealt;
    for (const Task& task : all_tasks(pool, set)) {
      std::array<std::int64_t, 3>& of_block = dealt[task.block];
      for (TaskKind before : kKinds) {
        if (before >= task.kind || !in_set(before, set)) continue;
        ASSERT_EQ(of_block[static_cast<std::size_t>(before)], parts_of(before, pool.shape))
            << "block " << task.block << " kind " << static_cast<int>(task.kind) << "; "
            << text(pool);
      }
      ++of_block[static_cast<std::size_t>(task.kind)];
    }
  });
}

TEST(Walk, TheSplitsSetsAreTheFusedOrderWithTheOtherTasksLeftOut) {
  for_random_pools(200, [](const Pool& pool, TaskSet set, std::mt19937_64&) {
    std::vector<Key> wanted;
    for (const Task& task : all_tasks(pool, TaskSet::all)) {
      if (in_set(task.kind, set)) wanted.push_back(key_of(task));
    }
    std::vector<Key> got;
    for (const Task& task : all_tasks(pool, set)) got.push_back(key_of(task));
    ASSERT_EQ(got, wanted) << text(pool);
  });
}

TEST(Walk, WorkersThatSeeOnlyTheirOwnAscendingTicketsDoEveryTaskOnceTogether) {
  for_random_pools(200, [](const Pool& pool, TaskSet set, std::mt19937_64& random) {
    const std::vector<Task> tasks = all_tasks(pool, set);
    const std::size_t workers = random() % 17 + 1;
    const bool strided = random() % 2 == 0;
    std::vector<Walk> walks(workers, pool.walk(set));
    for (std::size_t ticket = 0; ticket < tasks.size(); ++ticket) {
      Walk& walk = walks[strided ? ticket % workers : random() % workers];
      const Task task = walk.at(static_cast<std::int64_t>(ticket));
      ASSERT_EQ(key_of(task), key_of(tasks[ticket])) << "ticket " << ticket << "; " << text(pool);
      ASSERT_EQ(task.expert, tasks[ticket].expert) << "ticket " << ticket << "; " << text(pool);
    }
  });
}

TEST(Walk, ATicketMayBeAskedForAgain) {
  const Pool pool = pool_of({1, 0, 2}, {.pull_parts = 2, .gemm1_parts = 3, .gemm2_parts = 1});
  Walk walk = pool.walk(TaskSet::all);
  for (std::int64_t ticket = 0; ticket < walk.size(); ++ticket) {
    const Task first = walk.at(ticket);
    EXPECT_EQ(key_of(walk.at(ticket)), key_of(first)) << ticket;
  }
}

TEST(Walk, APoolWithoutRowsHasNoTasks) {
  for (TaskSet set : kTaskSets) {
    EXPECT_EQ(pool_of({}, {}).walk(set).size(), 0);
    EXPECT_EQ(pool_of({0, 0, 0}, {.experts_per_wave = 2}).walk(set).size(), 0);
  }
}

TEST(Walk, KindsWithoutPartsAreLeftOut) {
  const Pool pool = pool_of({2, 0, 1}, {.pull_parts = 0, .gemm1_parts = 2, .gemm2_parts = 1});
  const std::vector<Task> tasks = all_tasks(pool, TaskSet::all);
  ASSERT_EQ(tasks.size(), 9u);
  EXPECT_EQ(tasks[0].kind, TaskKind::gemm1);
  EXPECT_EQ(tasks[4].kind, TaskKind::gemm2);
  EXPECT_EQ(tasks[8].expert, 2);
}

TEST(Walk, TicketsBeyondTwoToTheThirtySecondFindTheirTask) {
  constexpr std::int64_t kMany = std::int64_t{1} << 32;
  const Pool pool = pool_of({kMany, 1}, {.gemm1_parts = 8192, .gemm2_parts = 4096});
  Walk walk = pool.walk(TaskSet::all);
  EXPECT_EQ(walk.size(), (kMany + 1) * (1 + 8192 + 4096));
  const Task task = walk.at(kMany + 1 + kMany * 8192 - 1);
  EXPECT_EQ(task.kind, TaskKind::gemm1);
  EXPECT_EQ(task.block, kMany - 1);
  EXPECT_EQ(task.part, 8191);
  const Task last = walk.at(walk.size() - 1);
  EXPECT_EQ(last.kind, TaskKind::gemm2);
  EXPECT_EQ(last.expert, 1);
  EXPECT_EQ(last.part, 4095);
}

TEST(FirstBlocks, AnExpertBeginsAfterTheBlocksOfAllEarlierOnes) {
  const std::int64_t rows[] = {0, 1, 63, 64, 65, 0, 128};
  std::int64_t first_block[8] = {};
  fill_first_blocks([&](std::int64_t e) { return rows[e]; }, 7, 64, first_block);
  const std::int64_t wanted[] = {0, 0, 1, 2, 3, 5, 5, 7};
  for (int e = 0; e <= 7; ++e) EXPECT_EQ(first_block[e], wanted[e]) << "expert " << e;
}

TEST(FirstBlocks, NoExpertsHaveNoBlocks) {
  std::int64_t first_block[1] = {-1};
  fill_first_blocks([](std::int64_t) { return std::int64_t{7}; }, 0, 16, first_block);
  EXPECT_EQ(first_block[0], 0);
}

TEST(ExpertsPerWave, AreTheFewestThatGiveEveryWorkerTwoTiles) {
  EXPECT_EQ(experts_per_wave(1, 1), 2);
  EXPECT_EQ(experts_per_wave(16, 16), 2);
  EXPECT_EQ(experts_per_wave(16, 15), 3);
  EXPECT_EQ(experts_per_wave(132, 16), 17);
  EXPECT_EQ(experts_per_wave(1, 1000), 1);
  for (std::int64_t workers = 1; workers <= 200; ++workers) {
    for (std::int64_t tiles = 1; tiles <= 64; ++tiles) {
      const std::int64_t experts = experts_per_wave(workers, tiles);
      ASSERT_GE(experts * tiles, 2 * workers) << workers << " workers, " << tiles << " tiles";
      ASSERT_TRUE(experts == 1 || (experts - 1) * tiles < 2 * workers)
          << workers << " workers, " << tiles << " tiles";
    }
  }
}

TEST(ExpertsPerWave, AreAtLeastOneWhateverIsAsked) {
  EXPECT_EQ(experts_per_wave(0, 5), 1);
  EXPECT_EQ(experts_per_wave(3, 0), 6);
}

}  // namespace
}  // namespace megamoe
