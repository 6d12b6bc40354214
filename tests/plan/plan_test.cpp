#include "plan/plan.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "base/names.hpp"

namespace megamoe {
namespace {

LayerConfig small_config() {
  return {.hidden = 256,
          .intermediate = 192,
          .experts = 10,
          .shared_experts = 1,
          .top_k = 3,
          .max_tokens = 20,
          .recipe = Recipe::fp8_fp4};
}

Plan plan_of(const PlanOverrides& overrides, std::int64_t cores = 8) {
  return make_plan(small_config(), 2, {.cores = cores}, overrides);
}

/// "" if `action` throws Error{invalid_argument} whose message holds all `parts`, else what it did.
template <class Action>
std::string refusal(const Action& action, std::initializer_list<std::string> parts) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) return "another error code";
    const std::string message = error.what();
    for (const std::string& part : parts) {
      if (message.find(part) == std::string::npos)
        return fmt::format("no \"{}\" in: {}", part, message);
    }
    return "";
  }
  return "accepted";
}

/// A size of the config, and the values that are just allowed.
struct Limit {
  const char* key;
  std::int64_t LayerConfig::*field;
  std::int64_t low;
  std::int64_t high;
};

const Limit kLimits[] = {{"hidden", &LayerConfig::hidden, 1, 1 << 20},
                         {"intermediate", &LayerConfig::intermediate, 1, 1 << 20},
                         {"experts", &LayerConfig::experts, 3, 1 << 16},
                         {"shared_experts", &LayerConfig::shared_experts, 0, 64},
                         {"top_k", &LayerConfig::top_k, 1, 10},
                         {"max_tokens", &LayerConfig::max_tokens, 1, 1 << 24}};

TEST(Validate, ASizeOutsideItsRangeIsRefusedWithKeyGotAndWanted) {
  for (const Limit& limit : kLimits) {
    LayerConfig config = small_config();
    config.recipe = Recipe::bf16_bf16;
    // experts is checked on its own before top_k asks for more of them.
    const std::int64_t below = limit.field == &LayerConfig::experts ? 0 : limit.low - 1;
    for (std::int64_t value :
         {below, limit.high + 1, std::int64_t{-5}, std::numeric_limits<std::int64_t>::max()}) {
      config.*limit.field = value;
      EXPECT_EQ(refusal([&] { validate(config); }, {limit.key, " is " + std::to_string(value),
                                                    "wanted", std::to_string(limit.high)}),
                "")
          << limit.key << " = " << value;
    }
  }
}

TEST(Validate, ASizeAtTheEndsOfItsRangeIsAccepted) {
  for (const Limit& limit : kLimits) {
    LayerConfig config = small_config();
    config.recipe = Recipe::bf16_bf16;
    for (std::int64_t value : {limit.low, limit.high}) {
      config.*limit.field = value;
      EXPECT_NO_THROW(validate(config)) << limit.key << " = " << value;
    }
  }
}

TEST(Validate, TopKIsBoundedByTheExpertsAndByThirtyTwo) {
  LayerConfig config = small_config();
  config.experts = 2;
  EXPECT_EQ(refusal([&] { validate(config); }, {"top_k is 3", "1 to 2"}), "");
  config.experts = 100;
  config.top_k = 33;
  EXPECT_EQ(refusal([&] { validate(config); }, {"top_k is 33", "1 to 32"}), "");
  config.top_k = 32;
  EXPECT_NO_THROW(validate(config));
}

TEST(Validate, FourBitWeightsWantMultiplesOfThirtyTwo) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::bf16_fp4}) {
    for (const auto& [hidden, intermediate] :
         {std::pair<std::int64_t, std::int64_t>{48, 64}, {64, 33}, {1, 1}}) {
      LayerConfig config = small_config();
      config.recipe = recipe;
      config.hidden = hidden;
      config.intermediate = intermediate;
      EXPECT_EQ(refusal([&] { validate(config); },
                        {std::string(name_of(recipe)), "hidden is " + std::to_string(hidden),
                         "intermediate " + std::to_string(intermediate), "32"}),
                "");
    }
  }
}

TEST(Validate, OtherWeightsTakeAnySizeAndFourBitOnesNeedNoMultipleOf128) {
  LayerConfig config = small_config();
  config.hidden = 101;
  config.intermediate = 77;
  for (Recipe recipe : {Recipe::fp8_fp8, Recipe::bf16_bf16, Recipe::bf16_fp8}) {
    config.recipe = recipe;
    EXPECT_NO_THROW(validate(config)) << name_of(recipe);
  }
  for (std::int64_t features : {2880, 2304, 1408}) {
    config = small_config();
    config.hidden = config.intermediate = features;
    EXPECT_NO_THROW(validate(config)) << features;
  }
}

TEST(Validate, AnActivationLimitIsPositive) {
  LayerConfig config = small_config();
  for (float limit : {0.0f, -1.5f, std::nanf("")}) {
    config.activation_limit = limit;
    EXPECT_EQ(refusal([&] { validate(config); },
                      {"activation_limit is ", limit == -1.5f ? "-1.5" : "", "positive"}),
              "")
        << limit;
  }
  config.activation_limit = 0.25f;
  EXPECT_NO_THROW(validate(config));
}

TEST(ChooseBlockRows, IsTheSmallestBlockThatHoldsTheRowsElseTheLargest) {
  const std::pair<std::int64_t, std::int64_t> wanted[] = {
      {0, 16},  {1, 16},   {16, 16},   {17, 32},   {32, 32},   {33, 64},   {64, 64},      {65, 96},
      {96, 96}, {97, 128}, {128, 128}, {129, 192}, {192, 192}, {193, 192}, {1 << 30, 192}};
  for (const auto& [rows, block_rows] : wanted)
    EXPECT_EQ(choose_block_rows(rows), block_rows) << rows;
}

TEST(MakePlan, TakesTheBlockFromTheRowsThatAnExpertMayExpect) {
  // 20 tokens x 2 ranks x 3 slots over 10 experts: 12 rows.
  EXPECT_EQ(plan_of({}).block_rows, 16);
  LayerConfig config = small_config();
  config.max_tokens = 27;  // 16.2 rows
  EXPECT_EQ(make_plan(config, 2, {}, {}).block_rows, 32);
  EXPECT_EQ(make_plan(config, 1, {}, {}).block_rows, 16);
  config.max_tokens = 1 << 24;
  EXPECT_EQ(make_plan(config, 2, {}, {}).block_rows, 192);
}

TEST(MakePlan, CutsTheWorkSoThatTasksCoverBlocksAndOutputs) {
  for (std::int64_t block_rows : kBlockRows) {
    const Plan plan = plan_of({.block_rows = block_rows});
    EXPECT_EQ(plan.block_rows, block_rows);
    EXPECT_EQ(plan.walk.pull_parts * plan.pull_rows, block_rows);
    EXPECT_EQ(plan.walk.gemm1_parts, 2) << "192 intermediates, 128 each";
    EXPECT_EQ(plan.walk.gemm2_parts, 1) << "256 outputs, 256 each";
    EXPECT_EQ(plan.walk.gemm2_parts * plan.gemm2_columns, 256);
  }
  LayerConfig config = small_config();
  config.hidden = 288;
  EXPECT_EQ(make_plan(config, 2, {}, {}).walk.gemm2_parts, 2) << "a short last range is a task too";
}

TEST(MakePlan, HasShapeAndArenaOfTheConfig) {
  const Plan plan = plan_of({});
  EXPECT_EQ(plan.shape, make_shape(small_config(), 2));
  EXPECT_EQ(plan.arena.bytes, make_arena_layout(plan.shape).bytes);
  EXPECT_EQ(plan.shape.max_tokens, 384);
  EXPECT_EQ(plan.config.max_tokens, 20) << "the capacity that the caller asked for is kept";
}

TEST(MakePlan, AWaveHasTheFewestExpertsThatGiveEveryWorkerTwoTiles) {
  EXPECT_EQ(plan_of({.workers = 1}).walk.experts_per_wave, 1);
  EXPECT_EQ(plan_of({.workers = 3}).walk.experts_per_wave, 3);
  EXPECT_EQ(plan_of({.workers = 500}).walk.experts_per_wave, 6) << "no more than the pool has";
}

TEST(MakePlan, OneWorkerMakesBothSetsOfTheSplitOneWorker) {
  for (std::int64_t cores : {-3, 0, 1}) {
    const Plan plan = plan_of({}, cores);
    EXPECT_EQ(plan.workers, 1) << cores;
    EXPECT_EQ(plan.k1_workers, 1) << cores;
    EXPECT_EQ(plan.k2_workers, 1) << cores;
    EXPECT_EQ(plan.threads(), 2) << cores;
  }
}

TEST(MakePlan, TheSplitShareOutAllWorkersTwoThirdsToTheFirstSet) {
  for (std::int64_t cores = 2; cores <= 1024; ++cores) {
    const Plan plan = plan_of({}, cores);
    ASSERT_EQ(plan.workers, cores);
    ASSERT_EQ(plan.k1_workers + plan.k2_workers, cores);
    ASSERT_EQ(plan.threads(), cores);
    ASSERT_TRUE(plan.k1_workers >= 1 && plan.k2_workers >= 1) << cores;
    ASSERT_LE(std::abs(3 * plan.k1_workers - 2 * cores), 3) << cores;
  }
  EXPECT_EQ(plan_of({}, 6).k1_workers, 4);
}

TEST(MakePlan, AMachineOfMoreCoresThanAPlanHasWorkersUsesAsManyAsThereAre) {
  EXPECT_EQ(plan_of({}, 5000).workers, 1024);
}

TEST(MakePlan, OverridesActInsteadOfTheHeuristics) {
  const Plan plan = plan_of({.workers = 5, .k1_workers = 7, .k2_workers = 9, .block_rows = 96});
  EXPECT_EQ(plan.workers, 5);
  EXPECT_EQ(plan.k1_workers, 7);
  EXPECT_EQ(plan.k2_workers, 9);
  EXPECT_EQ(plan.block_rows, 96);
  EXPECT_EQ(plan.threads(), 16);
}

TEST(MakePlan, TheSetThatIsNotNamedTakesTheWorkersThatTheOtherLeaves) {
  EXPECT_EQ(plan_of({.k1_workers = 3}).k2_workers, 5);
  EXPECT_EQ(plan_of({.k2_workers = 3}).k1_workers, 5);
  EXPECT_EQ(plan_of({.k2_workers = 6}).k1_workers, 2);
  EXPECT_EQ(plan_of({.k1_workers = 8}).k2_workers, 1) << "at least one";
  EXPECT_EQ(plan_of({.k2_workers = 20}).k1_workers, 1) << "at least one";
}

TEST(MakePlan, OverridesThatCannotBeAreRefusedWithKeyGotAndWanted) {
  for (std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1025},
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const std::string is = " is " + std::to_string(value);
    EXPECT_EQ(refusal([&] { plan_of({.workers = value}); }, {"workers" + is, "1 to 1024"}), "");
    EXPECT_EQ(refusal([&] { plan_of({.k1_workers = value}); }, {"k1_workers" + is, "1 to 1024"}),
              "");
    EXPECT_EQ(refusal([&] { plan_of({.k2_workers = value}); }, {"k2_workers" + is, "1 to 1024"}),
              "");
  }
  for (std::int64_t value : {0, 1, 17, 48, 384, -16}) {
    EXPECT_EQ(refusal([&] { plan_of({.block_rows = value}); },
                      {"block_rows is " + std::to_string(value), "16, 32, 64, 96, 128 or 192"}),
              "");
  }
}

TEST(MakePlan, RefusesConfigsAndRanksThatNoMachineCouldRun) {
  LayerConfig config = small_config();
  for (std::int64_t ranks : {0, -1, 1025}) {
    EXPECT_EQ(refusal([&] { make_plan(config, ranks, {}, {}); },
                      {"ranks is " + std::to_string(ranks), "1 to 1024"}),
              "");
  }
  config.hidden = 0;
  EXPECT_EQ(refusal([&] { make_plan(config, 2, {}, {}); }, {"hidden is 0"}), "");
}

TEST(MakePlan, RefusesMoreRowsForOneExpertThanACountWordHolds) {
  LayerConfig config = small_config();
  config.max_tokens = 1 << 24;
  EXPECT_NO_THROW(make_plan(config, 255, {}, {}));
  EXPECT_EQ(refusal([&] { make_plan(config, 256, {}, {}); },
                    {"ranks x max_tokens is 4294967296", "4294967295"}),
            "");
}

TEST(MakePlan, EqualInputsGiveEqualPlans) {
  const auto make = [] {
    return make_plan(small_config(), 3, {.cores = 7, .instruction_set = InstructionSet::avx2}, {});
  };
  const Plan a = make();
  plan_of({.workers = 99});  // another plan in between leaves no trace
  const Plan b = make();
  EXPECT_EQ(a.explain(), b.explain());
  EXPECT_EQ(a.shape, b.shape);
  for (std::size_t i = 0; i < kRegions; ++i) {
    EXPECT_EQ(a.arena.regions[i].offset_bytes, b.arena.regions[i].offset_bytes)
        << a.arena.regions[i].name;
  }
  EXPECT_EQ(a.walk.experts_per_wave, b.walk.experts_per_wave);
  EXPECT_EQ(a.k1_workers, b.k1_workers);
  EXPECT_EQ(a.k2_workers, b.k2_workers);
  EXPECT_EQ(a.machine.instruction_set, b.machine.instruction_set);
}

TEST(Explain, NamesEveryRegionOfTheArena) {
  const Plan plan = plan_of({});
  const std::string text = plan.explain();
  for (const Region& region : plan.arena.regions) {
    EXPECT_NE(text.find("\n              " + std::string(region.name) + " "), std::string::npos)
        << region.name << " is not in\n"
        << text;
  }
}

TEST(Explain, StatesEveryDecision) {
  LayerConfig config = small_config();
  config.activation_limit = 7.5f;
  const Plan plan =
      make_plan(config, 2, {.cores = 8, .instruction_set = InstructionSet::avx2},
                {.workers = 11, .k1_workers = 13, .k2_workers = 17, .block_rows = 96});
  const std::string text = plan.explain();
  for (const char* part : {"H 256",
                           "I 192",
                           "E 10",
                           "+1 shared",
                           "k 3",
                           "fp8_fp4",
                           "swiglu",
                           "limit 7.5",
                           "avx2",
                           "2, 5 experts each",
                           "20 tokens each",
                           "capacity 384",
                           "11 fused or staged",
                           "13 for dispatch and GEMM 1",
                           "17 for GEMM 2",
                           "96 rows of one expert",
                           "pulled 16 at a time",
                           "2 tasks per block, 128 intermediates each",
                           "1 tasks per block, 256 outputs each",
                           "6 of 6 experts"}) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
  }
}

TEST(Explain, SizesOfRegionsHaveUnitsAndBanksAreMentioned) {
  const std::string text = plan_of({}).explain();
  EXPECT_NE(text.find("fault                        512 B\n"), std::string::npos) << text;
  // 10 experts x 8 bytes, twice.
  EXPECT_NE(text.find("send count                   160 B  (two banks)\n"), std::string::npos)
      << text;
  // 4 slots x 384 tokens x 256 values of bf16.
  EXPECT_NE(text.find("combine                  768.0 KiB\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace megamoe
