// Layers whose ranks are processes: what stays of them.
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "megamoe/megamoe.hpp"

#include "cli/synthetic.hpp"
#include "support/engine_group.hpp"
#include "symmetric/processes.hpp"

namespace megamoe::test {
namespace {

using testing_symmetric::Child;
using testing_symmetric::count_entries;
using testing_symmetric::count_mappings_of;

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

/// One life of a rank: joins, makes a layer, calls it, leaves.
void live_once(int rank, const std::string& rendezvous, const LayerConfig& config) {
  const Group group = Group::processes({.rank = rank,
                                        .ranks = 2,
                                        .rendezvous = rendezvous,
                                        .group = {.deadline = std::chrono::seconds(60)}});
  const LayerWeights weights = cli::synthetic_weights(config, 1, 0, config.experts);
  Layer layer(config, weights, group, {.workers = 2});
  const Input input = cli::synthetic_input(config, 5, rank, 3);
  Batch batch = layer.batch(3);
  std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
  std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
  batch.x_bf16 = input.x;
  std::vector<BFloat16> y(input.x.size());
  layer.forward(batch, y);
}

/// Under a sanitizer memory grows, since it keeps what is freed, and the rest shows in fewer lives.
#ifdef MEGAMOE_SANITIZED
constexpr int kLives = 50;
constexpr std::int64_t kMayGrow = std::int64_t{1} << 40;
#else
constexpr int kLives = 200;
constexpr std::int64_t kMayGrow = 4 << 20;
#endif

TEST(LayerProcesses, ManyLivesLeaveMemoryDescriptorsAndMappingsFlat) {
  const auto before = testing_symmetric::traces();
  const std::string rendezvous = testing_symmetric::fresh_rendezvous();
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&rendezvous, rank]() -> std::string {
      LayerConfig config = small_config();
      config.max_tokens = 4;
      std::size_t files = 0;
      std::int64_t resident = 0;
      for (int cycle = 0; cycle < kLives; ++cycle) {
        live_once(rank, rendezvous, config);
        if (count_mappings_of("megamoe") != 0) return "a mapping was left";
        if (cycle == 20) files = count_entries("/proc/self/fd");
        if (cycle == 20) resident = resident_bytes();
      }
      if (count_entries("/proc/self/fd") != files) return "descriptors grew";
      const std::int64_t grown = resident_bytes() - resident;
      return grown < kMayGrow ? "flat" : "memory grew by " + std::to_string(grown);
    });
  }
  for (Child& child : children) {
    const auto outcome = child.reap();
    EXPECT_EQ(outcome.text, "flat") << (outcome.error ? outcome.error->what() : "");
  }
  EXPECT_EQ(testing_symmetric::traces(), before);
}

}  // namespace
}  // namespace megamoe::test
