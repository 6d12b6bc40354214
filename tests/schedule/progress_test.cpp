// Simulated workers in random interleavings: the proof that the order of the walk cannot deadlock.
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/walk.hpp"
#include "schedule/walk_cases.hpp"

namespace megamoe {
namespace {

using test::Pool;
using test::random_pool;

/// What is finished of each block. A task may run when the whole kind before it is finished.
class Progress {
 public:
  explicit Progress(const Pool& pool)
      : shape_(pool.shape),
        pulled_(static_cast<std::size_t>(pool.blocks())),
        multiplied_(static_cast<std::size_t>(pool.blocks())) {}

  bool may_run(const Task& task) const {
    const auto block = static_cast<std::size_t>(task.block);
    switch (task.kind) {
      case TaskKind::pull:
        return true;
      case TaskKind::gemm1:
        return pulled_[block] == shape_.pull_parts;
      case TaskKind::gemm2:
        return multiplied_[block] == shape_.gemm1_parts;
    }
    return false;
  }

  void finish(const Task& task) {
    if (task.kind == TaskKind::pull) ++pulled_[static_cast<std::size_t>(task.block)];
    if (task.kind == TaskKind::gemm1) ++multiplied_[static_cast<std::size_t>(task.block)];
    ++finished_;
  }

  std::int64_t finished() const { return finished_; }

 private:
  WalkShape shape_;
  std::vector<std::int64_t> pulled_;
  std::vector<std::int64_t> multiplied_;
  std::int64_t finished_ = 0;
};

/// Workers that take tickets from one counter, each with a walk of its own.
struct Team {
  struct Worker {
    Walk walk;
    std::optional<Task> task;
  };

  Team(const Pool& pool, TaskSet set, std::size_t size)
      : tasks(pool.walk(set).size()), workers(size, Worker{pool.walk(set), std::nullopt}) {}

  std::int64_t tasks;
  std::int64_t next_ticket = 0;
  std::vector<Worker> workers;
};

/// A step of one worker: take a ticket, or run the task it has. False if it can do neither.
bool step(Team& team, Team::Worker& worker, Progress& progress) {
  if (!worker.task) {
    if (team.next_ticket == team.tasks) return false;
    worker.task = worker.walk.at(team.next_ticket++);
    return true;
  }
  if (!progress.may_run(*worker.task)) return false;
  progress.finish(*worker.task);
  worker.task.reset();
  return true;
}

/// Lets a random worker that can do something do it, until none can. How many tasks were finished.
std::int64_t run(const Pool& pool, std::vector<Team> teams, std::mt19937_64& random) {
  Progress progress(pool);
  std::vector<std::function<bool()>> steps;
  for (Team& team : teams) {
    for (Team::Worker& worker : team.workers) {
      steps.emplace_back([&] { return step(team, worker, progress); });
    }
  }
  for (bool moved = true; moved;) {
    moved = false;
    const std::size_t first = random() % steps.size();
    for (std::size_t i = 0; i < steps.size() && !moved; ++i) {
      moved = steps[(first + i) % steps.size()]();
    }
  }
  return progress.finished();
}

std::int64_t fused_tasks(const Pool& pool) {
  return pool.walk(TaskSet::all).size();
}

TEST(Progress, FusedWorkersFinishEveryTaskInAnyInterleaving) {
  std::mt19937_64 random(29);
  for (int round = 0; round < 300; ++round) {
    const Pool pool = random_pool(random, round % 4);
    const std::size_t workers = random() % 12 + 1;
    const std::int64_t finished = run(pool, {Team(pool, TaskSet::all, workers)}, random);
    ASSERT_EQ(finished, fused_tasks(pool)) << workers << " workers are stuck; " << text(pool);
  }
}

TEST(Progress, TheSplitsTwoSetsOfWorkersFinishEveryTaskInAnyInterleaving) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 300; ++round) {
    const Pool pool = random_pool(random, round % 4);
    const std::size_t k1 = random() % 6 + 1;
    const std::size_t k2 = random() % 6 + 1;
    const std::int64_t finished = run(
        pool, {Team(pool, TaskSet::pull_and_gemm1, k1), Team(pool, TaskSet::gemm2, k2)}, random);
    ASSERT_EQ(finished, fused_tasks(pool)) << k1 << " and " << k2 << " are stuck; " << text(pool);
  }
}

TEST(Progress, StagedWorkersFinishTheFirstSetBeforeTheSecondBegins) {
  std::mt19937_64 random(37);
  for (int round = 0; round < 100; ++round) {
    const Pool pool = random_pool(random, round % 4);
    const std::int64_t finished =
        run(pool, {Team(pool, TaskSet::pull_and_gemm1, random() % 6 + 1)}, random);
    ASSERT_EQ(finished, pool.walk(TaskSet::pull_and_gemm1).size()) << text(pool);
  }
}

TEST(Progress, Gemm2WorkersAloneAreStuck) {
  std::mt19937_64 random(41);
  const Pool pool = test::pool_of({2, 1}, {.gemm1_parts = 2});
  EXPECT_EQ(run(pool, {Team(pool, TaskSet::gemm2, 3)}, random), 0)
      << "the simulation lets tasks run before their inputs";
}

}  // namespace
}  // namespace megamoe
