#include "topology/binding.hpp"

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "megamoe/megamoe.hpp"

#include "support/engine_group.hpp"

namespace megamoe {
namespace {

TEST(Binding, ThisThreadsMaskIsTheSchedulers) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0) << "more processors than a test expects";
  CpuSet expected;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) expected.push_back(cpu);
  }
  EXPECT_EQ(cpus_of_this_thread(), expected);
}

TEST(Binding, LastsForAScopeAndIsInheritedByThreadsOfIt) {
  const CpuSet before = cpus_of_this_thread();
  ASSERT_FALSE(before.empty());
  const CpuSet last{before.back()};
  CpuSet inherited;
  CpuSet later;
  std::thread started;
  std::atomic<bool> over{false};
  {
    const ThreadBinding binding(last);
    EXPECT_EQ(cpus_of_this_thread(), last);
    started = std::thread([&] {
      inherited = cpus_of_this_thread();
      over.wait(false);
      later = cpus_of_this_thread();
    });
    const ThreadBinding nothing(CpuSet{});
    EXPECT_EQ(cpus_of_this_thread(), last);
  }
  EXPECT_EQ(cpus_of_this_thread(), before);
  over = true;
  over.notify_one();
  started.join();
  EXPECT_EQ(inherited, last);
  EXPECT_EQ(later, last);
}

TEST(Binding, AThreadThatCannotBeBoundKeepsItsMask) {
  const CpuSet before = cpus_of_this_thread();
  {
    const ThreadBinding binding(CpuSet{1 << 20});
    EXPECT_EQ(cpus_of_this_thread(), before);
  }
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(Binding, PlacedMemoryIsUsable) {
  const PageMemory memory(1 << 16, "a test");
  const std::span<std::byte> bytes(memory.data(), 1 << 16);
  EXPECT_EQ(place_memory(bytes, host_topology().nodes()), can_place_memory());
  std::fill(bytes.begin(), bytes.end(), std::byte{7});
  EXPECT_EQ(bytes.back(), std::byte{7});
  EXPECT_FALSE(place_memory(bytes, {4711})) << "a node that is not there";
}

/// Two ranks as threads, each with a layer made and called with these options; what layer and
/// thread said.
struct RankState {
  std::string explanation;
  CpuSet after;
  std::vector<BFloat16> y;
};

std::vector<RankState> run_two_ranks(const LayerOptions& options) {
  const LayerConfig config = test::small_config();
  const LayerWeights weights = cli::synthetic_weights(config, 1, 0, config.experts);
  std::vector<Group> groups = Group::threads(2);
  std::vector<RankState> states(2);
  const auto play = [&](std::size_t rank) {
    Layer layer(config, weights, groups[rank], options);
    const test::Input input = cli::synthetic_input(config, 5, static_cast<int>(rank), 9);
    Batch batch = layer.batch(9);
    std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
    std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
    batch.x_bf16 = input.x;
    states[rank].y.resize(input.x.size());
    layer.forward(batch, states[rank].y);
    states[rank].explanation = layer.explain();
    states[rank].after = cpus_of_this_thread();
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  return states;
}

TEST(Binding, OfALayerIsToldAndLeavesTheCallersMaskAndTheBits) {
  const CpuSet mask = cpus_of_this_thread();
  const auto bound = run_two_ranks({.bind_threads = true});
  const auto free = run_two_ranks({.bind_threads = false});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const bool can = mask.size() >= 2;
    EXPECT_EQ(bound[rank].explanation.find("threads bound") != std::string::npos, can)
        << bound[rank].explanation;
    EXPECT_NE(free[rank].explanation.find("threads keep their mask"), std::string::npos);
    EXPECT_EQ(bound[rank].after, mask);
    EXPECT_EQ(test::difference(bound[rank].y, free[rank].y, 160), "");
  }
}

}  // namespace
}  // namespace megamoe
