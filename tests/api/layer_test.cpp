// The public interface as a user meets it: threads as ranks, batches, graphs, reports.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "api/layer_ranks.hpp"

namespace megamoe::test {
namespace {

TEST(Layer, XConvertedByTheCallerGivesTheBitsOfXBroughtAsBf16) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16}) {
    const LayerConfig config = small_config(recipe);
    Layer layer(config, all_weights(config), Group::single());
    const Input input = cli::synthetic_input(config, 5, 0, 9);
    const auto expected = run(layer, input);
    Batch batch = fill(layer, input);
    batch.x_bf16 = {};
    std::fill(batch.x.begin(), batch.x.end(), std::byte{0xff});
    convert_x(recipe, config.hidden, input.x, batch.x, batch.x_scales);
    std::vector<BFloat16> y(input.x.size());
    layer.forward(batch, y);
    EXPECT_EQ(difference(expected, y, config.hidden), "");
  }
}

TEST(Layer, AGraphReplaysWithNewRoutingOtherTokensAndNone) {
  for (Execution execution : kExecutions) {
    expect_no_errors(on_ranks(2, [&](int rank, const Group& group) {
      const LayerConfig config = small_config();
      Layer layer(config, all_weights(config), group);
      std::vector<BFloat16> y(static_cast<std::size_t>(config.max_tokens * config.hidden));
      Graph graph = layer.graph({.execution = execution, .y = y});
      for (std::int64_t tokens : {9, 0, 64, 3, 0, 17}) {
        const Input input =
            cli::synthetic_input(config, static_cast<std::uint64_t>(tokens), rank, tokens);
        const auto expected = run(layer, input);
        const Batch batch = fill(layer, input);
        convert_x(config.recipe, config.hidden, input.x, batch.x, batch.x_scales);
        std::fill(y.begin(), y.end(), BFloat16{0x5a5a});
        graph.replay(tokens);
        const auto rows = static_cast<std::ptrdiff_t>(tokens * config.hidden);
        EXPECT_EQ(difference(expected, {y.begin(), y.begin() + rows}, config.hidden), "");
        EXPECT_TRUE(std::all_of(y.begin() + rows, y.end(), [](BFloat16 value) {
          return value.bits == 0x5a5a;
        })) << "rows beyond the tokens were touched";
      }
    }));
  }
}

TEST(Layer, AGraphGoesOnWhenItsLayerIsMoved) {
  const LayerConfig config = small_config();
  auto first = std::make_unique<Layer>(config, all_weights(config), Group::single());
  const Input input = cli::synthetic_input(config, 5, 0, 9);
  const auto expected = run(*first, input);
  std::vector<BFloat16> y(static_cast<std::size_t>(config.max_tokens * config.hidden));
  Graph graph = first->graph({.execution = Execution::fused, .y = y});
  const Layer moved = std::move(*first);
  // What stood there now is another layer's, with other weights.
  *first = Layer(config, all_weights(config, 2), Group::single());
  const Batch batch = fill(moved, input);
  convert_x(config.recipe, config.hidden, input.x, batch.x, batch.x_scales);
  graph.replay(9);
  const auto rows = static_cast<std::ptrdiff_t>(9 * config.hidden);
  EXPECT_EQ(difference(expected, {y.begin(), y.begin() + rows}, config.hidden), "");
}

TEST(Layer, LayersOfOneShapeShareAnArenaAndTakeTurns) {
  expect_no_errors(on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    Layer first(config, all_weights(config, 1), group);
    Layer second(config, all_weights(config, 2), group);
    EXPECT_EQ(first.batch(1).experts.data(), second.batch(1).experts.data());
    const Input input = cli::synthetic_input(config, 5, rank, 11);
    const auto of_first = run(first, input);
    const auto of_second = run(second, input);
    EXPECT_NE(difference(of_first, of_second, config.hidden), "");
    EXPECT_EQ(difference(of_first, run(first, input), config.hidden), "");
    EXPECT_EQ(difference(of_second, run(second, input), config.hidden), "");
  }));
}

TEST(Layer, RefreshedWeightsAreUsedByTheNextCall) {
  const LayerConfig config = small_config();
  Layer layer(config, all_weights(config, 1), Group::single());
  Layer other(config, all_weights(config, 2), Group::single());
  const Input input = cli::synthetic_input(config, 5, 0, 11);
  const auto before = run(layer, input);
  layer.refresh(all_weights(config, 2));
  const auto after = run(layer, input);
  EXPECT_NE(difference(before, after, config.hidden), "");
  EXPECT_EQ(difference(after, run(other, input), config.hidden), "");
}

TEST(Layer, ALayerThatEndedAtOneRankOnlyDoesNotKeepTheNextFromItsArena) {
  LayerConfig config = small_config();
  const LayerConfig first = config;
  config.max_tokens += 1000;
  expect_no_errors(on_ranks(2, [&](int rank, const Group& group) {
    const Layer holds_the_first_arena(first, all_weights(first), group);
    auto old = std::make_unique<Layer>(config, all_weights(config), group);
    const Input input = cli::synthetic_input(config, 3, rank, 9);
    const auto expected = run(*old, input);
    if (rank == 0) old.reset();
    Layer next(config, all_weights(config), group);
    old.reset();
    EXPECT_EQ(difference(run(next, input), expected, config.hidden), "") << "rank " << rank;
  }));
}

TEST(Layer, PackedWeightsAreSavedAndLoaded) {
  for (Activation activation : {Activation::swiglu, Activation::swiglu_oai}) {
    LayerConfig config = small_config();
    config.shared_experts = 1;
    config.activation = activation;
    const auto folder =
        std::filesystem::temp_directory_path() / ("megamoe-packed-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const Input input = cli::synthetic_input(config, 5, 0, 11);
    Layer layer(config, all_weights(config), Group::single());
    layer.save_packed(folder / "rank0");
    Layer loaded(config, folder / "rank0", Group::single());
    EXPECT_EQ(difference(run(layer, input), run(loaded, input), config.hidden), "");
    LayerConfig other = config;
    other.recipe = Recipe::bf16_fp4;
    EXPECT_THROW(Layer(other, folder / "rank0", Group::single()), Error);
    std::filesystem::resize_file(folder / "rank0", 1000);
    EXPECT_THROW(Layer(config, folder / "rank0", Group::single()), Error);
    std::filesystem::remove_all(folder);
  }
}

TEST(Layer, LayersShareTheExpertsThatOneOfThemPacked) {
  expect_no_errors(on_ranks(2, [&](int rank, const Group& group) {
    LayerConfig config = small_config();
    config.shared_experts = 1;
    LayerConfig larger = config;
    larger.max_tokens += 1000;
    larger.top_k = 2;
    larger.activation_limit = 1.0f;
    const Input input = cli::synthetic_input(config, 5, rank, 11);
    const Input wide = cli::synthetic_input(larger, 6, rank, 200);
    const auto expected = run(*std::make_unique<Layer>(larger, all_weights(config), group), wide);
    auto first = std::make_unique<Layer>(config, all_weights(config), group);
    const auto of_first = run(*first, input);
    Layer second(larger, first->packed_experts(), group);
    EXPECT_EQ(difference(run(second, wide), expected, config.hidden), "");
    EXPECT_EQ(difference(run(*first, input), of_first, config.hidden), "");
    // What one refreshes the other has, as long as either is there.
    second.refresh(all_weights(config, 2));
    EXPECT_NE(difference(run(*first, input), of_first, config.hidden), "");
    second.refresh(all_weights(config));
    EXPECT_EQ(difference(run(*first, input), of_first, config.hidden), "");
    first.reset();
    EXPECT_EQ(difference(run(second, wide), expected, config.hidden), "");
  }));
}

TEST(Layer, SharedExpertsThatWerePackedForSomethingElseAreNamed) {
  const LayerConfig config = small_config();
  const Layer layer(config, all_weights(config), Group::single());
  LayerConfig other = config;
  other.recipe = Recipe::bf16_fp4;
  try {
    const Layer refused(other, layer.packed_experts(), Group::single());
    FAIL() << "they were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find("bf16_fp4"), std::string::npos) << error.what();
  }
}

TEST(Layer, TheReportCountsWhatTheCallDid) {
  const LayerConfig config = small_config();
  Layer layer(config, all_weights(config), Group::single());
  run(layer, cli::synthetic_input(config, 5, 0, 11));
  const CallReport& report = layer.report();
  EXPECT_EQ(report.tokens, 11);
  EXPECT_EQ(report.routes, 33);
  std::int64_t rows = 0;
  for (std::int64_t count : report.rows_per_expert) rows += count;
  EXPECT_EQ(rows, 33);
  EXPECT_EQ(report.flops, 6 * 33 * config.hidden * config.intermediate);
  EXPECT_EQ(report.pushed_bytes, 33 * config.hidden * 2);
  EXPECT_EQ(report.pulled_bytes, 33 * (config.hidden + config.hidden / 32));
  EXPECT_GT(report.total_ns, 0);
}

TEST(Layer, TheReportOfACallWithBadIdsIsOfThatCall) {
  const LayerConfig config = small_config();
  Layer layer(config, all_weights(config), Group::single());
  run(layer, cli::synthetic_input(config, 5, 0, 11));
  Input input = cli::synthetic_input(config, 5, 0, 7);
  input.experts[4] = config.experts;
  EXPECT_THROW(run(layer, input), Error);
  EXPECT_EQ(layer.report().tokens, 7);
  EXPECT_EQ(layer.report().routes, 20);
}

}  // namespace
}  // namespace megamoe::test
