// The fused kernel against the f64 reference. Needs a Hopper GPU; skips without one.
#include <cmath>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "expectations.hpp"
#include "gpu_group.hpp"

namespace megamoe::test {
namespace {

class Fused : public testing::Test {
 protected:
  void SetUp() override {
    if (device::usable_devices() == 0) GTEST_SKIP() << "no GPU of compute capability 9.0";
  }
};

TEST_F(Fused, MatchesTheReferenceWithEveryTokenTile) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 1);
  const BatchData batch = make_batch_data(config, 96, 2);
  const auto wanted = reference(config, data.weights, batch);
  GpuGroup group(config, data.weights, 1);
  for (const sm90::KernelShape& shape : sm90::kKernelShapes) {
    SCOPED_TRACE(shape.tokens);
    expect_close(group.run({batch}, {.token_tile = shape.tokens})[0], wanted);
  }
}

TEST_F(Fused, MatchesTheReferenceInFp8WithEveryTokenTileAndTheSameBits) {
  LayerConfig config = small_config();
  config.recipe = Recipe::fp8_fp8;
  config.shared_experts = 1;
  // Multiples of 128, and not.
  for (const auto& [hidden, intermediate] : {std::pair{1024, 512}, std::pair{1440, 400}}) {
    SCOPED_TRACE(hidden);
    config.hidden = hidden;
    config.intermediate = intermediate;
    const LayerData data = make_layer_data(config, 41);
    const BatchData batch = make_batch_data(config, 150, 42);
    GpuGroup group(config, data.weights, 1);
    const auto wanted = reference(config, data.weights, batch);
    std::vector<float> first;
    for (sm90::KernelShape shape : sm90::kKernelShapes) {
      shape.fp8 = true;
      if (!sm90::has_kernel(shape, sm90::KernelPart::fused)) continue;
      SCOPED_TRACE(shape.tokens);
      const auto got = group.run({batch}, {.token_tile = shape.tokens})[0];
      expect_close(got, wanted);
      if (first.empty()) first = got;
      expect_same_bits(got, first, "token tile");
    }
  }
}

TEST_F(Fused, GivesTheSameBitsWithEveryTokenTileAndInEveryCall) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 3);
  const BatchData batch = make_batch_data(config, 300, 4);
  GpuGroup group(config, data.weights, 1);
  const auto first = group.run({batch}, {.token_tile = 16})[0];
  for (const sm90::KernelShape& shape : sm90::kKernelShapes) {
    for (int repeat = 0; repeat < 8; ++repeat) {
      expect_same_bits(group.run({batch}, {.token_tile = shape.tokens})[0], first, "token tile");
    }
  }
}

TEST_F(Fused, GivesATokenTheSameBitsAloneAndInABatch) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 5);
  const BatchData batch = make_batch_data(config, 200, 6);
  GpuGroup group(config, data.weights, 1);
  const auto all = group.run({batch})[0];
  BatchData one = batch;
  one.tokens = 1;
  const auto alone = group.run({one})[0];
  expect_same_bits(alone, {all.begin(), all.begin() + config.hidden}, "token 0");
}

TEST_F(Fused, MatchesTheReferenceWithSizesThatAreNoMultiplesOf128) {
  LayerConfig config = small_config();
  config.hidden = 1440;
  config.intermediate = 416;
  config.activation = Activation::swiglu_oai;
  LayerDataOptions options;
  options.bias = LayerDataOptions::Bias::random;
  const LayerData data = make_layer_data(config, 7, options);
  const BatchData batch = make_batch_data(config, 70, 8);
  GpuGroup group(config, data.weights, 1);
  const auto wanted = reference(config, data.weights, batch);
  expect_close(group.run({batch}, {.token_tile = 32})[0], wanted);
  expect_close(group.run({batch}, {.token_tile = 176})[0], wanted);
}

TEST_F(Fused, TakesAbsentDoubleAndForeignIds) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 9);
  BatchData batch = make_batch_data(config, 40, 10);
  for (int s = 0; s < 4; ++s) batch.experts[s] = -1;
  batch.experts[5] = batch.experts[4];
  batch.experts[7] = batch.experts[4];
  batch.experts[3 * 4 + 2] = -5;
  GpuGroup group(config, data.weights, 1);
  expect_close(group.run({batch})[0], reference(config, data.weights, batch));
  batch.experts[8 * 4 + 1] = config.experts;
  const auto wanted = reference(config, data.weights, batch);
  EXPECT_THROW(group.run({batch}), Error);
  expect_close(group.read(0, batch.tokens), wanted);
  batch.experts[8 * 4 + 1] = 0;
  EXPECT_NO_THROW(group.run({batch}));
}

TEST_F(Fused, TakesNoTokensThenManyThenFew) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 11);
  GpuGroup group(config, data.weights, 1);
  for (const std::int64_t tokens : {0, 384, 1, 0, 17}) {
    SCOPED_TRACE(tokens);
    const BatchData batch = make_batch_data(config, tokens, 12 + static_cast<unsigned>(tokens));
    const auto got = group.run({batch})[0];
    if (tokens > 0) expect_close(got, reference(config, data.weights, batch));
  }
}

TEST_F(Fused, AddsSharedExpertsForTheRanksOwnTokensLast) {
  LayerConfig config = small_config();
  config.shared_experts = 2;
  LayerDataOptions options;
  options.bias = LayerDataOptions::Bias::random;
  const LayerData data = make_layer_data(config, 31, options);
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    GpuGroup group(config, data.weights, ranks);
    std::vector<BatchData> batches;
    for (int r = 0; r < ranks; ++r) {
      batches.push_back(make_batch_data(config, r == 1 ? 0 : 50 + 60 * r, 32u + r));
    }
    // Tokens without a route have the shared experts' results alone.
    for (int s = 0; s < 8; ++s) batches[0].experts[s] = -1;
    for (const int tile : {16, 64, 176}) {
      const auto got = group.run(batches, {.token_tile = tile});
      for (int r = 0; r < ranks; ++r) {
        if (batches[r].tokens == 0) continue;
        expect_close(got[r], reference(config, data.weights, batches[r]));
      }
    }
  }
}

TEST_F(Fused, TakesEverythingRoutedToOneExpert) {
  LayerConfig config = small_config();
  config.top_k = 1;
  const LayerData data = make_layer_data(config, 13);
  BatchData batch = make_batch_data(config, 384, 14);
  for (auto& id : batch.experts) id = 3;
  GpuGroup group(config, data.weights, 1);
  const auto wanted = reference(config, data.weights, batch);
  for (const int tile : {16, 64, 176}) {
    expect_close(group.run({batch}, {.token_tile = tile})[0], wanted);
  }
}

TEST_F(Fused, KeepsANaNInItsToken) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 15);
  BatchData batch = make_batch_data(config, 64, 16);
  batch.x[5 * config.hidden + 100] = std::byte{0x7F};
  GpuGroup group(config, data.weights, 1);
  const auto got = group.run({batch})[0];
  for (std::int64_t i = 0; i < 64 * config.hidden; ++i) {
    ASSERT_EQ(std::isnan(got[static_cast<std::size_t>(i)]), i / config.hidden == 5) << i;
  }
}

TEST_F(Fused, RunsTwoAndThreeRanksOnSharesOfOneDevice) {
  LayerConfig config = small_config();
  config.experts = 10;
  const LayerData data = make_layer_data(config, 17);
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    GpuGroup group(config, data.weights, ranks);
    GpuGroup alone(config, data.weights, 1);
    std::vector<BatchData> batches;
    for (int r = 0; r < ranks; ++r) {
      batches.push_back(make_batch_data(config, r == 1 ? 0 : 50 + 60 * r, 18u + r));
    }
    for (int repeat = 0; repeat < 4; ++repeat) {
      const auto got = group.run(batches);
      for (int r = 0; r < ranks; ++r) {
        if (repeat == 0 && batches[r].tokens > 0) {
          expect_close(got[r], reference(config, data.weights, batches[r]));
        }
        expect_same_bits(got[r], alone.run({batches[r]})[0], "ranks");
      }
    }
  }
}

TEST_F(Fused, RunsRanksOnDevicesOfTheirOwn) {
  const int devices = device::usable_devices();
  if (devices < 2) GTEST_SKIP() << "one GPU of compute capability 9.0 here, two are wanted";
  LayerConfig config = small_config();
  config.experts = 10;
  const LayerData data = make_layer_data(config, 23);
  GpuGroup group(config, data.weights, devices, std::chrono::seconds(2),
                 Placement::device_per_rank);
  GpuGroup alone(config, data.weights, 1);
  std::vector<BatchData> batches;
  for (int r = 0; r < devices; ++r) {
    batches.push_back(make_batch_data(config, r == 1 ? 7 : 50 + 60 * r, 24u + r));
  }
  for (int repeat = 0; repeat < 200; ++repeat) {
    if (repeat % 50 == 0) {
      for (int r = 0; r < devices; ++r) {
        group.use(r);
        group.arena(r).poison(0xFF);
      }
    }
    const auto got = group.run(batches);
    for (int r = 0; r < devices; ++r) {
      if (repeat == 0) expect_close(got[r], reference(config, data.weights, batches[r]));
      group.use(0);
      if (repeat % 50 == 0) {
        expect_same_bits(got[r], alone.run({batches[r]})[0], "a device per rank");
      }
    }
  }
}

TEST_F(Fused, NamesTheRankThatDoesNotCome) {
  const LayerConfig config = small_config();
  const LayerData data = make_layer_data(config, 19);
  GpuGroup group(config, data.weights, 2, std::chrono::milliseconds(50));
  const BatchData batch = make_batch_data(config, 8, 20);
  group.load(0, batch);
  group.layer(0).forward(8, group.y(0), group.stream(0));
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

TEST_F(Fused, MatchesTheReferenceAtTheWidthOfDeepSeekV3) {
  LayerConfig config;
  config.hidden = 7168;
  config.intermediate = 2048;
  config.experts = 2;
  config.top_k = 2;
  config.max_tokens = 384;
  const LayerData data = make_layer_data(config, 21);
  const BatchData batch = make_batch_data(config, 3, 22);
  GpuGroup group(config, data.weights, 1);
  expect_close(group.run({batch})[0], reference(config, data.weights, batch));
}

}  // namespace
}  // namespace megamoe::test
