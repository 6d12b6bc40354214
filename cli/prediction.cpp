#include "cli/prediction.hpp"

#include <cmath>

#include "layout/weight_strips.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::cli {

Prediction predict(const LayerSource& source, const Plan& plan) {
  const LayerShape& shape = plan.shape;
  const WeightFormat format = weight_format(shape.recipe);
  return predict(source, shape,
                 gemm1_strips(format, shape.hidden, shape.intermediate).bytes() +
                     gemm2_strips(format, shape.hidden, shape.intermediate).bytes());
}

Prediction predict(const LayerSource& source, const LayerShape& shape, std::int64_t expert_bytes) {
  const auto experts = static_cast<double>(shape.experts);
  const auto tokens = static_cast<double>(source.total_tokens());
  const double missed = 1 - static_cast<double>(shape.top_k) / experts;  // by one token
  std::int64_t busy_ranks = 0;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    if (source.tokens(rank) > 0) ++busy_ranks;
  }
  Prediction prediction;
  prediction.experts_hit = experts * (1 - std::pow(missed, tokens)) +
                           static_cast<double>(busy_ranks * shape.shared_experts);
  prediction.weight_bytes = prediction.experts_hit * static_cast<double>(expert_bytes);
  prediction.flops = 6 * static_cast<double>(shape.hidden) *
                     static_cast<double>(shape.intermediate) * tokens *
                     static_cast<double>(shape.top_k + shape.shared_experts);
  return prediction;
}

}  // namespace megamoe::cli
