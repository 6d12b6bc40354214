// The split and the staged kernels against the fused one, bit for bit. Needs a Hopper GPU; skips
// without one.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "expectations.hpp"
#include "gpu_group.hpp"

namespace megamoe::test {
namespace {

class Split : public testing::Test {
 protected:
  void SetUp() override {
    if (device::usable_devices() == 0) GTEST_SKIP() << "no GPU of compute capability 9.0";
  }
};

/// Sizes, tokens per rank and multiprocessors, all from one number.
struct RandomCase {
  LayerConfig config;
  int ranks;
  std::vector<BatchData> batches;
  sm90::GpuOverrides split;
};

RandomCase make_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&random](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  RandomCase c;
  c.ranks = static_cast<int>(pick({1, 1, 2, 4}));
  if (random() % 2 == 0) c.config.recipe = Recipe::fp8_fp8;
  c.config.hidden = pick({256, 512, 1024, 1440});
  c.config.intermediate = pick({128, 256, 416});
  c.config.experts = pick({4, 7, 8, 20});
  c.config.top_k = pick({1, 2, 4});
  c.config.shared_experts = pick({0, 0, 1, 3});
  c.config.max_tokens = 384;
  if (random() % 2 == 0) c.config.activation_limit = 7.0f;
  for (int r = 0; r < c.ranks; ++r) {
    c.batches.push_back(make_batch_data(c.config, pick({0, 1, 5, 60, 200, 384}), seed + 1u + r));
    std::vector<std::int64_t>& ids = c.batches.back().experts;
    const bool skewed = random() % 4 == 0;
    for (std::int64_t& id : ids) {
      if (random() % 8 == 0) id = -1;
      if (skewed && id >= 0) id = 0;
    }
  }
  const std::int64_t share = device::multiprocessors() / c.ranks;
  c.split.execution = Execution::split;
  c.split.k1_blocks = 1 + static_cast<std::int64_t>(random()) % (share - 1);
  c.split.k2_blocks = 1 + static_cast<std::int64_t>(random()) % (share - *c.split.k1_blocks);
  if (random() % 2 == 0) c.split.token_tile = static_cast<int>(pick({16, 32, 64, 96, 160}));
  return c;
}

TEST_F(Split, AndStagedGiveTheBitsOfFusedInTwoHundredRandomCases) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const RandomCase c = make_case(1000 * seed);
    const LayerData data = make_layer_data(c.config, seed, {.distinct_experts = 2});
    GpuGroup group(c.config, data.weights, c.ranks);
    const auto fused = group.run(c.batches);
    const auto split = group.run(c.batches, c.split);
    const auto staged = group.run(c.batches, {.execution = Execution::staged});
    const auto again = group.run(c.batches);
    for (std::size_t r = 0; r < c.batches.size(); ++r) {
      expect_same_bits(split[r], fused[r], "split");
      expect_same_bits(staged[r], fused[r], "staged");
      expect_same_bits(again[r], fused[r], "fused after split and staged");
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(Split, GivesTheSameBitsAThousandTimesOverPoisonedMemory) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 3);
  const BatchData batch = make_batch_data(config, 300, 4);
  GpuGroup group(config, data.weights, 1);
  const auto first = group.run({batch})[0];
  for (int repeat = 0; repeat < 1000; ++repeat) {
    if (repeat % 100 == 0) group.arena(0).poison(0xFF);
    expect_same_bits(group.run({batch}, {.execution = Execution::split})[0], first, "split");
    if (HasFatalFailure()) return;
  }
}

TEST_F(Split, RunsWhereverK2BeginsFirst) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 5);
  GpuGroup group(config, data.weights, 1);
  const BatchData batch = make_batch_data(config, 200, 6);
  const auto fused = group.run({batch})[0];
  sm90::GpuOverrides split{.execution = Execution::split};
  split.k2_first = true;
  for (int repeat = 0; repeat < 50; ++repeat) {
    expect_same_bits(group.run({batch}, split)[0], fused, "K2 first");
  }
}

TEST_F(Split, NamesTheRankThatDoesNotComeInBothKernels) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 19);
  for (const Execution execution : {Execution::split, Execution::staged}) {
    GpuGroup group(config, data.weights, 2, std::chrono::milliseconds(50));
    group.load(0, make_batch_data(config, 8, 20));
    group.layer(0).forward(8, group.y(0), group.stream(0), {.execution = execution});
    try {
      group.layer(0).wait(group.stream(0));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::deadline);
      EXPECT_NE(std::string(error.what()).find("barrier A of rank 1"), std::string::npos)
          << error.what();
    }
    EXPECT_TRUE(std::isnan(group.read(0, 1)[0]));
  }
}

TEST_F(Split, K2WithoutItsK1EndsWithAnErrorThatNamesIt) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 21);
  GpuGroup group(config, data.weights, 1, std::chrono::milliseconds(50));
  group.load(0, make_batch_data(config, 8, 22));
  sm90::GpuOverrides lost{.execution = Execution::split};
  lost.k1_lost = true;
  group.layer(0).forward(8, group.y(0), group.stream(0), lost);
  try {
    group.layer(0).wait(group.stream(0));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::deadline);
    EXPECT_NE(std::string(error.what()).find("K1"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(std::isnan(group.read(0, 1)[0]));
  // Another group on the same device works.
  GpuGroup other(config, data.weights, 1);
  const BatchData batch = make_batch_data(config, 30, 23);
  expect_close(other.run({batch}, {.execution = Execution::split})[0],
               reference(config, data.weights, batch));
}

}  // namespace
}  // namespace megamoe::test
