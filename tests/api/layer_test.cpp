// The public interface as a user meets it: threads as ranks, batches, graphs, errors.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "megamoe/megamoe.hpp"

#include "cli/synthetic.hpp"
#include "cpu/reference.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

/// Runs work(rank, group) in one thread per rank and returns the message of each rank's error, ""
/// for none.
std::vector<std::string> on_ranks(int ranks, const std::function<void(int, const Group&)>& work,
                                  std::chrono::nanoseconds deadline = std::chrono::seconds(60)) {
  GroupOptions options;
  options.deadline = deadline;
  std::vector<Group> groups = Group::threads(ranks, options);
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[static_cast<std::size_t>(rank)])] {
      try {
        work(rank, group);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  return messages;
}

void expect_no_errors(const std::vector<std::string>& messages) {
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    EXPECT_EQ(messages[rank], "") << "rank " << rank;
  }
}

/// Fills the batch with a rank's random tokens; x as bf16 lives in `input`.
Batch fill(const Layer& layer, const Input& input) {
  Batch batch = layer.batch(static_cast<std::int64_t>(input.x.size()) / layer.config().hidden);
  std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
  std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
  batch.x_bf16 = input.x;
  return batch;
}

std::vector<BFloat16> run(Layer& layer, const Input& input,
                          Execution execution = Execution::fused) {
  std::vector<BFloat16> y(input.x.size());
  layer.forward(fill(layer, input), y, execution);
  return y;
}

LayerWeights all_weights(const LayerConfig& config, std::uint64_t seed = 1) {
  return cli::synthetic_weights(config, seed, 0, config.experts);
}

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

TEST(Layer, LayersCalledInOppositeOrderAreAnErrorThatNamesBoth) {
  const auto messages = on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    Layer first(config, all_weights(config, 1), group);
    Layer second(config, all_weights(config, 2), group);
    run(rank == 0 ? first : second, cli::synthetic_input(config, 5, rank, 11));
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("layer 1"), std::string::npos) << message;
    EXPECT_NE(message.find("layer 2"), std::string::npos) << message;
  }
}

TEST(Layer, LayersOfDifferentShapeCalledInOppositeOrderAreThatErrorToo) {
  const auto messages = on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    LayerConfig wide = config;
    wide.hidden = 192;
    Layer first(config, all_weights(config), group);
    Layer second(wide, all_weights(wide), group);
    EXPECT_NE(first.batch(1).experts.data(), second.batch(1).experts.data());
    for (int call = 0; call < 3; ++call) {  // in the same order they take turns
      run(first, cli::synthetic_input(config, 5, rank, 11));
      run(second, cli::synthetic_input(wide, 5, rank, 11));
      if (call == 1) run(first, cli::synthetic_input(config, 6, rank, 7));
    }
    if (rank == 0) {
      run(first, cli::synthetic_input(config, 5, rank, 11));
    } else {
      run(second, cli::synthetic_input(wide, 5, rank, 11));
    }
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("layer 1"), std::string::npos) << message;
    EXPECT_NE(message.find("layer 2"), std::string::npos) << message;
  }
}

TEST(Layer, AFaultInOneArenaEndsTheWholeGroup) {
  std::atomic<int> refused{0};
  const auto messages = on_ranks(
      2,
      [&](int rank, const Group& group) {
        const LayerConfig config = small_config();
        LayerConfig wide = config;
        wide.hidden = 192;
        Layer first(config, all_weights(config), group);
        Layer second(wide, all_weights(wide), group);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
        try {
          run(first, cli::synthetic_input(config, 5, rank, 11));
        } catch (const Error&) {
          ++refused;
        }
        run(second, cli::synthetic_input(wide, 5, rank, 11));
      },
      std::chrono::milliseconds(200));
  EXPECT_EQ(refused, 2);
  for (const std::string& message : messages) EXPECT_NE(message, "");
}

TEST(Layer, TooManyTokensAreRefusedByNameAndTheGroupStaysUsable) {
  const auto messages = on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    Layer layer(config, all_weights(config), group);
    if (rank == 1) {
      try {
        layer.batch(config.max_tokens + 1);
        ADD_FAILURE() << "65 tokens were accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(std::string(error.what()).find("65"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("64"), std::string::npos) << error.what();
      }
    }
    run(layer, cli::synthetic_input(config, 5, rank, 11));
  });
  expect_no_errors(messages);
}

TEST(Layer, ARankThatDoesNotComeIsNamedWhenTheDeadlinePasses) {
  const auto messages = on_ranks(
      3,
      [&](int rank, const Group& group) {
        const LayerConfig config = small_config();
        Layer layer(config, all_weights(config), group);
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::seconds(2));
        } else {
          run(layer, cli::synthetic_input(config, 5, rank, 11));
        }
      },
      std::chrono::milliseconds(300));
  EXPECT_EQ(messages[2], "");
  for (int rank : {0, 1}) {
    EXPECT_NE(messages[static_cast<std::size_t>(rank)].find("rank 2"), std::string::npos)
        << messages[static_cast<std::size_t>(rank)];
    EXPECT_NE(messages[static_cast<std::size_t>(rank)].find("barrier A"), std::string::npos)
        << messages[static_cast<std::size_t>(rank)];
  }
}

TEST(Layer, RanksThatDisagreeOnTheShapeAllSaySo) {
  const auto messages = on_ranks(3, [&](int rank, const Group& group) {
    LayerConfig config = small_config();
    if (rank == 1) config.hidden = 192;
    Layer layer(config, all_weights(config), group);
  });
  for (const std::string& message : messages) {
    for (const char* part : {"hidden", "160", "192", "rank 1"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
}

TEST(Layer, ARankWhoseWeightsAreBadFailsTheConstructionOnEveryRankAtOnce) {
  const auto messages = on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    LayerWeights weights = all_weights(config);
    if (rank == 1) weights.experts[7].up.columns = 32;
    Layer layer(config, weights, group);
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("expert 7 up"), std::string::npos) << message;
  }
  EXPECT_NE(messages[0].find("rank 1"), std::string::npos) << messages[0];
}

TEST(Layer, NonFiniteWeightsAreRefusedWithTheirPlace) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16}) {
    const LayerConfig config = small_config(recipe);
    LayerWeights weights = all_weights(config);
    MatrixView& down = weights.experts[3].down;
    std::vector<std::byte> values(down.values, down.values + down.rows * down.row_stride_bytes);
    std::vector<std::byte> scales(512, std::byte{127});
    down.values = values.data();
    if (recipe == Recipe::fp8_fp4) {
      scales.assign(static_cast<std::size_t>(down.rows * down.scale_row_stride_bytes),
                    std::byte{255});
      down.scales = scales.data();
    } else {
      std::fill_n(values.begin() + 5 * down.row_stride_bytes, 2, std::byte{0x7f});
      if (recipe == Recipe::bf16_bf16)
        values[static_cast<std::size_t>(5 * down.row_stride_bytes)] = std::byte{0x80};
    }
    try {
      Layer layer(config, weights, Group::single());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::format);
      EXPECT_NE(std::string(error.what()).find("expert 3 down"), std::string::npos) << error.what();
    }
  }
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

TEST(Layer, RefusedWeightsLeaveTheLayerAsItWas) {
  const LayerConfig config = small_config(Recipe::bf16_bf16);
  Layer layer(config, all_weights(config), Group::single());
  const Input input = cli::synthetic_input(config, 3, 0, 9);
  const auto expected = run(layer, input);
  LayerWeights bad = all_weights(config, 2);
  bad.experts.back().down_bias.assign(static_cast<std::size_t>(config.hidden), NAN);
  EXPECT_THROW(layer.refresh(bad), Error);
  EXPECT_EQ(difference(run(layer, input), expected, config.hidden), "");
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

TEST(Layer, AnAbsentSizeIsRefusedByName) {
  LayerConfig config = small_config();
  config.intermediate = 0;
  try {
    Layer layer(config, LayerWeights{}, Group::single());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("intermediate"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megamoe::test
