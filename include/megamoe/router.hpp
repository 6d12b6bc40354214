// Routers of the model families: hidden states in, top-k expert ids and weights out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megamoe/types.hpp"

namespace megamoe {

/// What turns logits into scores.
enum class RouterScores { softmax, sigmoid, sqrt_softplus };

/// logits = weight * x + bias; scores = f(logits); the choice is the top_k of scores +
/// selection_bias, inside the best groups if there are several; weights are the unbiased scores of
/// the chosen, renormalised if asked, times `scaling`. A group's rank is the sum of its two best
/// (biased) scores. Ties go to the lower id; a NaN score ranks below every number.
struct RouterConfig {
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  RouterScores scores = RouterScores::softmax;
  bool renormalise = true;
  float scaling = 1.0f;
  std::int64_t groups = 1;      ///< must divide experts
  std::int64_t top_groups = 1;  ///< groups that stay, 1 to groups
  std::vector<float> weight;    ///< [experts, hidden]
  std::vector<float> bias;      ///< empty or [experts]: added to the logits
  std::vector<float>
      selection_bias;  ///< empty or [experts]: added to the scores for the choice alone
};

/// Routes tokens. x: bf16 [tokens, hidden]; experts, weights: [tokens, top_k], written whole, best
/// first. Throws Error{invalid_argument} on sizes that do not fit. Logits are summed in f64 and
/// rounded to f32.
void route(const RouterConfig& router, std::span<const BFloat16> x, std::span<std::int64_t> experts,
           std::span<float> weights);

}  // namespace megamoe
