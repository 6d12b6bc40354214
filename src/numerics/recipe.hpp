// What a Recipe says about each operand, and the bytes of a row of it.
#pragma once

#include <cstdint>

#include "megamoe/types.hpp"

#include "base/integers.hpp"

namespace megamoe {

/// How x stands in the arena: the group of the scales is part of the name.
enum class XFormat { bf16, e4m3_ue8m0_32, e4m3_f32_128 };

/// How the activations stand between the GEMMs.
enum class IntermediateFormat { bf16, e4m3_ue8m0_128 };

constexpr XFormat x_format(Recipe recipe) {
  switch (recipe) {
    case Recipe::fp8_fp4:
      return XFormat::e4m3_ue8m0_32;
    case Recipe::fp8_fp8:
      return XFormat::e4m3_f32_128;
    case Recipe::bf16_bf16:
    case Recipe::bf16_fp4:
    case Recipe::bf16_fp8:
      break;
  }
  return XFormat::bf16;
}

/// The format of W1 and W2 of the routed experts.
constexpr WeightFormat weight_format(Recipe recipe) {
  switch (recipe) {
    case Recipe::fp8_fp4:
    case Recipe::bf16_fp4:
      return WeightFormat::fp4;
    case Recipe::fp8_fp8:
    case Recipe::bf16_fp8:
      return WeightFormat::fp8;
    case Recipe::bf16_bf16:
      break;
  }
  return WeightFormat::bf16;
}

/// The format of W1 and W2 of the shared experts.
constexpr WeightFormat shared_weight_format(const LayerConfig& config) {
  return config.shared_weights.value_or(weight_format(config.recipe));
}

constexpr IntermediateFormat intermediate_format(Recipe recipe) {
  return x_format(recipe) == XFormat::bf16 ? IntermediateFormat::bf16
                                           : IntermediateFormat::e4m3_ue8m0_128;
}

/// The bytes of one token's H values.
constexpr std::int64_t x_row_bytes(Recipe recipe, std::int64_t hidden) {
  return x_format(recipe) == XFormat::bf16 ? 2 * hidden : hidden;
}

/// The bytes of one token's scales: none for bf16, one UE8M0 byte per 32 values, or one f32 per
/// 128; the last group may be short.
constexpr std::int64_t x_scale_row_bytes(Recipe recipe, std::int64_t hidden) {
  switch (x_format(recipe)) {
    case XFormat::bf16:
      return 0;
    case XFormat::e4m3_ue8m0_32:
      return ceil_div(hidden, 32);
    case XFormat::e4m3_f32_128:
      return 4 * ceil_div(hidden, 128);
  }
  return 0;
}

/// The bytes of one row's I values between the GEMMs.
constexpr std::int64_t intermediate_row_bytes(Recipe recipe, std::int64_t intermediate) {
  return intermediate_format(recipe) == IntermediateFormat::bf16 ? 2 * intermediate : intermediate;
}

/// The bytes of one row's scales between the GEMMs: none for bf16, else one UE8M0 byte per 128
/// values.
constexpr std::int64_t intermediate_scale_row_bytes(Recipe recipe, std::int64_t intermediate) {
  return intermediate_format(recipe) == IntermediateFormat::bf16 ? 0 : ceil_div(intermediate, 128);
}

}  // namespace megamoe
