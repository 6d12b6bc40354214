// One token's x from bf16 into a recipe's format: the conversion that callers, ranks and the
// reference share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "megamoe/types.hpp"

#include "base/integers.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/recipe.hpp"

namespace megamoe {

/// x: bf16 [hidden]; values: x_row_bytes; scales: x_scale_row_bytes, unused for bf16 recipes.
inline void convert_x_row(Recipe recipe, std::int64_t hidden, const BFloat16* x, std::byte* values,
                          std::byte* scales) {
  const XFormat format = x_format(recipe);
  if (format == XFormat::bf16) {
    std::memcpy(values, x, static_cast<std::size_t>(hidden) * sizeof(BFloat16));
    return;
  }
  const std::int64_t group = format == XFormat::e4m3_ue8m0_32 ? 32 : 128;
  float floats[128];
  std::uint8_t bytes[128];
  for (std::int64_t first = 0; first < hidden; first += group) {
    const std::int64_t count = min64(group, hidden - first);
    std::transform(x + first, x + first + count, floats,
                   [](BFloat16 value) { return to_float(value); });
    if (format == XFormat::e4m3_ue8m0_32) {
      std::uint8_t scale = 0;
      quantise_e4m3_group(floats, count, bytes, scale);
      scales[first / group] = std::byte{scale};
    } else {
      float scale = 0;
      quantise_e4m3_group_f32(floats, count, bytes, scale);
      std::memcpy(scales + first / group * 4, &scale, sizeof scale);
    }
    std::memcpy(values + first, bytes, static_cast<std::size_t>(count));
  }
}

}  // namespace megamoe
