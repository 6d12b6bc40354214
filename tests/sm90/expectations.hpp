// What results on a GPU are held against.
#pragma once

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/reference.hpp"
#include "layer_data.hpp"
#include "numerics/float_bits.hpp"

namespace megamoe::test {

inline LayerConfig small_config() {
  LayerConfig config;
  config.hidden = 1024;
  config.intermediate = 512;
  config.experts = 8;
  config.top_k = 4;
  config.max_tokens = 384;
  return config;
}

inline std::vector<float> reference(const LayerConfig& config, const LayerWeights& weights,
                                    const BatchData& batch) {
  const auto x = reference_x(config.recipe, config.hidden, batch.tokens, batch.x, batch.x_scales);
  return reference_forward(config, weights, x, batch.experts, batch.weights);
}

inline void expect_close(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  const double distance = relative_l2(got, wanted);
  if (distance <= 1e-2) return;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::fabs(got[i] - wanted[i]) <= 0.05 * std::fabs(wanted[i]) + 1e-3) continue;
    FAIL() << "relative L2 " << distance << "; first at element " << i << ": got " << got[i]
           << ", wanted " << wanted[i];
  }
  FAIL() << "relative L2 " << distance;
}

inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& wanted,
                             const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(f32_bits(got[i]), f32_bits(wanted[i])) << what << ", element " << i;
  }
}

}  // namespace megamoe::test
