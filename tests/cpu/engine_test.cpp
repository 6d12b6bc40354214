// The engine against the reference, over recipes, ranks, workers, executions and instruction sets.
#include <gtest/gtest.h>

#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

constexpr Recipe kRecipes[] = {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16,
                               Recipe::bf16_fp4, Recipe::bf16_fp8};
TEST(Engine, EveryRecipeMatchesTheReferenceOnEveryExecution) {
  for (Recipe recipe : kRecipes) {
    for (std::int64_t shared : {0, 2}) {
      LayerConfig config = small_config(recipe);
      config.shared_experts = shared;
      EngineGroup group({.config = config, .ranks = 3});
      const auto all = group.inputs({17, 0, 33});
      const GroupResult fused = group.call(all, Execution::fused);
      fused.check();
      EXPECT_EQ(group.compare_with_reference(all, fused), "");
      for (Execution execution : kExecutions) {
        group.poison();
        const GroupResult other = group.call(all, execution);
        other.check();
        for (std::size_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(difference(fused.y[rank], other.y[rank], config.hidden), "") << "rank " << rank;
        }
      }
    }
  }
}

TEST(Engine, BitsDoNotDependOnRanksWorkersOrBlocks) {
  LayerConfig config = small_config();
  config.max_tokens = 40;
  EngineGroup alone({.config = config, .ranks = 1});
  const Input input = alone.input(0, 40);
  const GroupResult expected = alone.call({input}, Execution::fused);
  expected.check();
  for (int ranks : {1, 2, 3, 4, 12}) {
    for (std::int64_t workers : {1, 3}) {
      for (std::int64_t block_rows : {16, 192}) {
        EngineGroup group({.config = config,
                           .ranks = ranks,
                           .plan = {.workers = workers, .block_rows = block_rows}});
        std::vector<Input> all(static_cast<std::size_t>(ranks));
        all.back() = input;
        for (int r = 0; r + 1 < ranks; ++r) all[static_cast<std::size_t>(r)] = group.input(r, 11);
        const GroupResult result = group.call(all, Execution::split);
        result.check();
        EXPECT_EQ(difference(expected.y[0], result.y.back(), config.hidden), "")
            << ranks << " ranks, " << workers << " workers, blocks of " << block_rows;
      }
    }
  }
}

}  // namespace
}  // namespace megamoe::test
