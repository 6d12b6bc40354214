// Inputs that other implementations of this operation are known to have got wrong.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

/// Runs all executions on poisoned arenas, compares fused with the reference and the others bit for
/// bit with fused; returns fused.
GroupResult expect_right(EngineGroup& group, const std::vector<Input>& inputs) {
  GroupResult fused;
  for (Execution execution : kExecutions) {
    group.poison();
    GroupResult result = group.call(inputs, execution);
    result.check();
    if (execution == Execution::fused) {
      EXPECT_EQ(group.compare_with_reference(inputs, result), "");
      fused = std::move(result);
    } else {
      EXPECT_EQ(difference(fused, result, group.config().hidden), "");
    }
  }
  return fused;
}

TEST(EngineCases, RanksMayHaveNoTokens) {
  EngineGroup four({.config = small_config(), .ranks = 4});
  expect_right(four, four.inputs({0, 7, 0, 33}));
  expect_right(four, four.inputs({0, 0, 0, 0}));
  EngineGroup two({.config = small_config(), .ranks = 2});
  expect_right(two, two.inputs({0, 1}));
}

TEST(EngineCases, EverythingMayBeRoutedToOneExpertOrOneRank) {
  LayerConfig config = small_config();
  config.max_tokens = 400;  // more rows than the largest block
  EngineGroup group({.config = config, .ranks = 2, .plan = {.block_rows = 192}});
  auto inputs = group.inputs({400, 400});
  for (Input& input : inputs) {
    for (std::size_t i = 0; i < input.experts.size(); ++i)
      input.experts[i] = static_cast<std::int64_t>(i) % 3;
  }
  expect_right(group, inputs);
  for (Input& input : inputs) {
    for (std::size_t i = 0; i < input.experts.size(); ++i) input.experts[i] = i % 3 == 0 ? 9 : -1;
  }
  expect_right(group, inputs);
}

TEST(EngineCases, ExpertsNeedNotDivideByRanks) {
  for (int ranks : {3, 4, 7}) {
    LayerConfig config = small_config();
    config.experts = 7;
    config.top_k = 5;  // more than the local experts of a rank
    EngineGroup group({.config = config, .ranks = ranks});
    expect_right(group,
                 group.inputs(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 9)));
  }
}

TEST(EngineCases, SizesOfModelsThatAreNoMultiplesOf128AreRight) {
  for (const auto& [hidden, intermediate] : {std::pair{2880, 1408}, std::pair{2304, 2880}}) {
    LayerConfig config = small_config();
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.experts = 3;
    config.top_k = 2;
    EngineGroup group({.config = config, .ranks = 2});
    expect_right(group, group.inputs({3, 1}));
  }
}

TEST(EngineCases, ARankMayOwnNoExpert) {
  LayerConfig config = small_config();
  config.experts = 3;
  EngineGroup group({.config = config, .ranks = 5});
  expect_right(group, group.inputs({4, 4, 4, 4, 4}));
}

TEST(EngineCases, TopKReachesThirtyTwo) {
  for (std::int64_t k : {1, 16, 32}) {
    LayerConfig config = small_config();
    config.experts = 40;
    config.top_k = k;
    EngineGroup group({.config = config, .ranks = 2});
    expect_right(group, group.inputs({5, 6}));
  }
}

TEST(EngineCases, SlotsMayBeEmptyAndTokensWithoutRoutesGiveZero) {
  EngineGroup group({.config = small_config(), .ranks = 2});
  auto inputs = group.inputs({20, 20});
  for (Input& input : inputs) {
    for (std::size_t i = 0; i < input.experts.size(); i += 2) {
      input.experts[i] = -1;
      input.weights[i] = std::numeric_limits<float>::quiet_NaN();  // must not be read
    }
    std::fill_n(input.experts.begin() + 9, 3, -7);  // token 3 has no route
  }
  const GroupResult result = expect_right(group, inputs);
  for (std::int64_t c = 0; c < group.config().hidden; ++c) {
    EXPECT_EQ(to_float(result.y[0][static_cast<std::size_t>(3 * group.config().hidden + c)]), 0.0f);
  }
}

TEST(EngineCases, TheSameExpertTwiceIsOneRouteWithTheSumOfTheWeights) {
  EngineGroup group({.config = small_config(), .ranks = 2});
  auto inputs = group.inputs({12, 12});
  auto merged = inputs;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < inputs[rank].experts.size(); i += 3) {
      inputs[rank].experts[i + 2] = inputs[rank].experts[i];
      merged[rank].experts[i + 2] = -1;
      merged[rank].weights[i] = inputs[rank].weights[i] + inputs[rank].weights[i + 2];
    }
  }
  const GroupResult twice = expect_right(group, inputs);
  const GroupResult once = expect_right(group, merged);
  EXPECT_EQ(difference(twice, once, group.config().hidden), "");
}

TEST(EngineCases, AnIdBeyondTheExpertsIsNamedAndHurtsOnlyItsToken) {
  EngineGroup group({.config = small_config(), .ranks = 2});
  const auto good = group.inputs({8, 8});
  const GroupResult expected = group.call(good, Execution::fused);
  for (Execution execution : kExecutions) {
    auto bad = good;
    bad[1].experts[5 * 3 + 1] = 10;
    const GroupResult result = group.call(bad, execution);
    EXPECT_EQ(result.message(0), "");
    for (const char* part : {"rank 1", "token 5", "slot 1", "expert 10", "0 to 9"}) {
      EXPECT_NE(result.message(1).find(part), std::string::npos) << result.message(1);
    }
    EXPECT_EQ(difference(expected.y[0], result.y[0], group.config().hidden), "");
    auto healed = result;
    const auto row = static_cast<std::ptrdiff_t>(5 * group.config().hidden);
    for (std::ptrdiff_t c = 0; c < group.config().hidden; ++c) {
      EXPECT_TRUE(std::isnan(to_float(result.y[1][static_cast<std::size_t>(row + c)])));
      healed.y[1][static_cast<std::size_t>(row + c)] =
          expected.y[1][static_cast<std::size_t>(row + c)];
    }
    EXPECT_EQ(difference(expected.y[1], healed.y[1], group.config().hidden), "");
    const GroupResult after = group.call(good, execution);
    after.check();
    EXPECT_EQ(difference(expected, after, group.config().hidden), "");
  }
}

TEST(EngineCases, RowCountsAroundTheBlockSizeAreRight) {
  LayerConfig config = small_config();
  config.experts = 4;
  config.top_k = 1;
  EngineGroup group({.config = config, .ranks = 2, .plan = {.block_rows = 16}});
  for (std::int64_t tokens : {1, 15, 16, 17, 31, 32, 33, 63}) {
    auto inputs = group.inputs({tokens, tokens / 2});
    for (Input& input : inputs) std::fill(input.experts.begin(), input.experts.end(), 2);
    expect_right(group, inputs);
  }
}

TEST(EngineCases, ALargeBatchLeavesNothingToASmallOne) {
  EngineGroup used({.config = small_config(), .ranks = 2});
  EngineGroup fresh({.config = small_config(), .ranks = 2});
  const auto small = fresh.inputs({3, 2}, 5);
  const GroupResult expected = fresh.call(small, Execution::fused);
  expected.check();
  for (Execution execution : kExecutions) {
    used.call(used.inputs({64, 64}), execution).check();
    const GroupResult result = used.call(small, execution);
    result.check();
    EXPECT_EQ(difference(expected, result, used.config().hidden), "");
  }
}

TEST(EngineCases, AnAllZeroRowGivesZeros) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16}) {
    EngineGroup group({.config = small_config(recipe), .ranks = 1});
    auto inputs = group.inputs({4});
    std::fill_n(inputs[0].x.begin() + group.config().hidden, group.config().hidden, BFloat16{0});
    const GroupResult result = expect_right(group, inputs);
    for (std::int64_t c = 0; c < group.config().hidden; ++c) {
      EXPECT_EQ(to_float(result.y[0][static_cast<std::size_t>(group.config().hidden + c)]), 0.0f);
    }
  }
}

TEST(EngineCases, ANaNInOneTokenStaysInThatToken) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16}) {
    EngineGroup group({.config = small_config(recipe), .ranks = 2});
    auto inputs = group.inputs({20, 20});
    const GroupResult clean = group.call(inputs, Execution::fused);
    inputs[0].x[7 * static_cast<std::size_t>(group.config().hidden) + 3] = kBf16NaN;
    const GroupResult result = group.call(inputs, Execution::fused);
    result.check();
    auto healed = result;
    for (std::int64_t c = 0; c < group.config().hidden; ++c) {
      const auto at = static_cast<std::size_t>(7 * group.config().hidden + c);
      EXPECT_TRUE(std::isnan(to_float(result.y[0][at]))) << "feature " << c;
      healed.y[0][at] = clean.y[0][at];
    }
    EXPECT_EQ(difference(clean, healed, group.config().hidden), "");
  }
}

TEST(EngineCases, TheOtherRanksTokensDoNotChangeARanksBits) {
  EngineGroup group({.config = small_config(), .ranks = 3});
  const Input mine = group.input(0, 13);
  std::vector<BFloat16> expected;
  for (std::int64_t others : {0, 1, 30, 64}) {
    const GroupResult result =
        group.call({mine, group.input(1, others), group.input(2, others / 2, 3)}, Execution::fused);
    result.check();
    if (expected.empty()) expected = result.y[0];
    EXPECT_EQ(difference(expected, result.y[0], group.config().hidden), "")
        << others << " tokens elsewhere";
  }
}

TEST(EngineCases, TheClampActsAndMatchesTheReference) {
  LayerConfig config = small_config(Recipe::bf16_bf16);
  GroupResult results[2];
  for (int clamped : {0, 1}) {
    if (clamped == 1) config.activation_limit = 10.0f;
    EngineGroup group({.config = config, .ranks = 2});
    auto inputs = group.inputs({16, 16});
    std::mt19937 engine(3);
    std::normal_distribution<float> normal(0, 20);
    for (Input& input : inputs) {
      for (BFloat16& value : input.x) value = to_bf16(normal(engine));
    }
    results[clamped] = expect_right(group, inputs);
  }
  EXPECT_NE(difference(results[0], results[1], config.hidden), "");
}

TEST(EngineCases, SwigluOaiWithBiasesMatchesTheReference) {
  for (Recipe recipe : {Recipe::bf16_fp4, Recipe::fp8_fp4}) {
    LayerConfig config = small_config(recipe);
    config.activation = Activation::swiglu_oai;
    EngineGroup group({.config = config, .ranks = 2});
    expect_right(group, group.inputs({30, 9}));
  }
}

TEST(EngineCases, InstructionSetsAgreeWithTheReferenceAndVectorsWithEachOther) {
  std::vector<std::pair<InstructionSet, GroupResult>> results;
  for (InstructionSet set :
       {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
    if (!has_instruction_set(set)) continue;
    EngineGroup group({.config = small_config(), .ranks = 2, .instruction_set = set});
    results.emplace_back(set, expect_right(group, group.inputs({40, 21})));
  }
  for (const auto& [set, result] : results) {
    if (set == InstructionSet::scalar || results.back().first == InstructionSet::scalar) continue;
    EXPECT_EQ(difference(results.back().second, result, small_config().hidden), "");
  }
}

TEST(EngineCases, ALateRankIsNamedByASplitRankThatOwnsNoExperts) {
  GroupSpec spec;
  spec.config = small_config();
  spec.config.experts = 1;
  spec.config.top_k = 1;
  spec.config.shared_experts = 1;  // so that rank 1 has rows which wait for no other rank
  spec.deadline = std::chrono::milliseconds(400);
  spec.hook = [](int rank, EnginePhase phase, std::int64_t) {
    // Rank 1's K2 begins to wait well before its K1 comes to barrier A.
    if (rank == 1 && phase == EnginePhase::scatter) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (rank == 0 && phase == EnginePhase::begin) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    }
  };
  EngineGroup group(spec);
  const GroupResult result = group.call(group.inputs({5, 5}), Execution::split);
  EXPECT_NE(result.message(1).find("arrival of rank 0"), std::string::npos) << result.message(1);
}

}  // namespace
}  // namespace megamoe::test
