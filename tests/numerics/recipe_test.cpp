#include "numerics/recipe.hpp"

#include <gtest/gtest.h>

namespace megamoe {
namespace {

struct RecipeFacts {
  Recipe recipe;
  XFormat x;
  WeightFormat weights;
  IntermediateFormat intermediate;
  std::int64_t x_row_bytes;                   // H = 2880
  std::int64_t x_scale_row_bytes;             // H = 2880
  std::int64_t intermediate_row_bytes;        // I = 2304
  std::int64_t intermediate_scale_row_bytes;  // I = 2304
};

// 2880 = 90 * 32 = 22.5 * 128; 2304 = 18 * 128.
constexpr RecipeFacts kFacts[] = {
    {Recipe::fp8_fp4, XFormat::e4m3_ue8m0_32, WeightFormat::fp4, IntermediateFormat::e4m3_ue8m0_128,
     2880, 90, 2304, 18},
    {Recipe::fp8_fp8, XFormat::e4m3_f32_128, WeightFormat::fp8, IntermediateFormat::e4m3_ue8m0_128,
     2880, 92, 2304, 18},
    {Recipe::bf16_bf16, XFormat::bf16, WeightFormat::bf16, IntermediateFormat::bf16, 5760, 0, 4608,
     0},
    {Recipe::bf16_fp4, XFormat::bf16, WeightFormat::fp4, IntermediateFormat::bf16, 5760, 0, 4608,
     0},
    {Recipe::bf16_fp8, XFormat::bf16, WeightFormat::fp8, IntermediateFormat::bf16, 5760, 0, 4608,
     0},
};

static_assert(x_row_bytes(Recipe::fp8_fp4, 7168) == 7168);

TEST(RecipeFacts, EachRecipeHasTheFormatsOfTheContract) {
  for (const RecipeFacts& facts : kFacts) {
    const int recipe = static_cast<int>(facts.recipe);
    EXPECT_EQ(x_format(facts.recipe), facts.x) << recipe;
    EXPECT_EQ(weight_format(facts.recipe), facts.weights) << recipe;
    EXPECT_EQ(intermediate_format(facts.recipe), facts.intermediate) << recipe;
  }
}

TEST(RecipeFacts, RowsHaveTheBytesOfTheirFormatAndAShortLastGroupHasAScale) {
  for (const RecipeFacts& facts : kFacts) {
    const int recipe = static_cast<int>(facts.recipe);
    EXPECT_EQ(x_row_bytes(facts.recipe, 2880), facts.x_row_bytes) << recipe;
    EXPECT_EQ(x_scale_row_bytes(facts.recipe, 2880), facts.x_scale_row_bytes) << recipe;
    EXPECT_EQ(intermediate_row_bytes(facts.recipe, 2304), facts.intermediate_row_bytes) << recipe;
    EXPECT_EQ(intermediate_scale_row_bytes(facts.recipe, 2304), facts.intermediate_scale_row_bytes)
        << recipe;
  }
  EXPECT_EQ(x_scale_row_bytes(Recipe::fp8_fp4, 33), 2);
  EXPECT_EQ(x_scale_row_bytes(Recipe::fp8_fp8, 129), 8);
  EXPECT_EQ(intermediate_scale_row_bytes(Recipe::fp8_fp4, 129), 2);
}

}  // namespace
}  // namespace megamoe
