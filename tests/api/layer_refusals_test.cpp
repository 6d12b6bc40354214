// What the public interface refuses, and what a group does about a rank that does not do its part.
#include <atomic>
#include <cmath>

#include "api/layer_ranks.hpp"

namespace megamoe::test {
namespace {

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

TEST(Layer, ACallRefusedAtOneRankIsNoCallAndMayBeMadeAgain) {
  expect_no_errors(on_ranks(2, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    Layer layer(config, all_weights(config), group);
    const Input input = cli::synthetic_input(config, 5, rank, 11);
    if (rank == 1) {
      std::vector<BFloat16> small(input.x.size() - 1);
      EXPECT_THROW(layer.forward(fill(layer, input), small), Error);
    }
    const auto y = run(layer, input);
    Layer alone(config, all_weights(config), Group::single());
    EXPECT_EQ(difference(run(alone, input), y, config.hidden), "") << "rank " << rank;
  }));
}

TEST(Layer, ARankThatLeavesAfterARefusedCallIsNamedByTheOthersBeforeTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const auto messages = on_ranks(3, [&](int rank, const Group& group) {
    const LayerConfig config = small_config();
    Layer layer(config, all_weights(config), group);
    if (rank == 1) layer.batch(config.max_tokens + 1);
    run(layer, cli::synthetic_input(config, 5, rank, 11));
  });
  EXPECT_NE(messages[1].find("65 tokens"), std::string::npos) << messages[1];
  for (std::size_t rank : {0u, 2u}) {
    EXPECT_NE(messages[rank].find("rank 1 left the group"), std::string::npos) << messages[rank];
    EXPECT_NE(messages[rank].find("barrier A"), std::string::npos) << messages[rank];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
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

TEST(Layer, WeightsThatTheHostCannotHoldAreRefusedBeforeTheyArePacked) {
  LayerConfig config = small_config(Recipe::bf16_bf16);
  config.hidden = config.intermediate = 1 << 14;
  config.experts = 1 << 16;
  const auto messages =
      on_ranks(2, [&](int, const Group& group) { Layer layer(config, LayerWeights{}, group); });
  for (const std::string& message : messages) {
    for (const char* part : {"packed weights: 2 rank(s)", "98304.00 GiB in all", "available by"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
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
