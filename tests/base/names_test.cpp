#include "base/names.hpp"

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

TEST(Names, EveryRecipeIsParsedBackFromItsName) {
  for (Recipe recipe :
       {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16, Recipe::bf16_fp4, Recipe::bf16_fp8}) {
    EXPECT_EQ(parse_recipe(name_of(recipe)), recipe);
  }
}

TEST(Names, EveryExecutionIsParsedBackFromItsName) {
  for (Execution execution : {Execution::fused, Execution::split, Execution::staged}) {
    EXPECT_EQ(parse_execution(name_of(execution)), execution);
  }
}

TEST(Names, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  try {
    parse_recipe("fp7");
    FAIL() << "fp7 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("fp8_fp4"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megamoe
