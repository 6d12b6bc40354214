#include "plan/sm90_plan.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

namespace megamoe::sm90 {
namespace {

LayerShape v3(std::int64_t ranks = 1) {
  return {.hidden = 7168,
          .intermediate = 2048,
          .experts = 32 * ranks,
          .top_k = 8,
          .ranks = ranks,
          .max_tokens = 8448};
}

TEST(Sm90Plan, SplitSharesTheMultiprocessorsOutAndNeverTakesMore) {
  for (std::int64_t all = 2; all <= 160; ++all) {
    const GpuMachine machine{.multiprocessors = all, .blocks = all};
    const GpuPlan plan = make_gpu_plan(v3(), 512, machine, {.execution = Execution::split});
    ASSERT_GE(plan.k1_blocks, 1) << all;
    ASSERT_GE(plan.k2_blocks, 1) << all;
    ASSERT_EQ(plan.k1_blocks + plan.k2_blocks, all);
  }
}

TEST(Sm90Plan, SplitTakesWhatIsAskedForAndRefusesWhatDoesNotFit) {
  const GpuMachine machine;
  const auto plan_of = [&](std::optional<std::int64_t> k1, std::optional<std::int64_t> k2) {
    return make_gpu_plan(v3(), 512, machine,
                         {.execution = Execution::split, .k1_blocks = k1, .k2_blocks = k2});
  };
  EXPECT_EQ(plan_of(100, {}).k2_blocks, 32);
  EXPECT_EQ(plan_of({}, 20).k1_blocks, 112);
  EXPECT_EQ(plan_of(10, 20).k1_blocks, 10);
  EXPECT_EQ(plan_of(10, 20).k2_blocks, 20);
  EXPECT_THROW(plan_of(132, {}), Error);
  EXPECT_THROW(plan_of(100, 33), Error);
  EXPECT_THROW(plan_of(0, {}), Error);
  EXPECT_THROW(make_gpu_plan(v3(), 512, {.multiprocessors = 1, .blocks = 1},
                             {.execution = Execution::split}),
               Error);
}

TEST(Sm90Plan, EveryPartHasTheTileItIsPlannedWith) {
  for (const Execution execution : {Execution::fused, Execution::split, Execution::staged}) {
    const KernelPart part = execution == Execution::fused ? KernelPart::fused : KernelPart::k1;
    for (std::int64_t tokens = 0; tokens <= 8192; tokens = tokens * 2 + 1) {
      const GpuPlan plan = make_gpu_plan(v3(), tokens, {}, {.execution = execution});
      ASSERT_TRUE(has_kernel(plan.kernel, part)) << tokens;
      ASSERT_LE(plan.shared.bytes, kMaxSharedBytes);
      ASSERT_LE(plan.shared2.bytes, kMaxSharedBytes);
      ASSERT_GE(plan.shared2.stages, plan.shared.stages) << "K2 has no rows to pull";
    }
  }
  EXPECT_NO_THROW(make_gpu_plan(v3(), 8192, {}, {.token_tile = 176}));
  EXPECT_THROW(make_gpu_plan(v3(), 8192, {}, {.token_tile = 176, .execution = Execution::split}),
               Error);
}

TEST(Sm90Plan, SaysHowManyMultiprocessorsEachKernelHas) {
  const GpuPlan plan = make_gpu_plan(v3(), 512, {}, {.execution = Execution::split});
  const std::string text = plan.explain();
  for (const std::int64_t blocks : {plan.k1_blocks, plan.k2_blocks, plan.blocks}) {
    EXPECT_NE(text.find(std::to_string(blocks)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace megamoe::sm90
