#include "cli/prediction.hpp"

#include <cmath>

#include "cpu/packed_weights.hpp"

namespace megamoe::cli {

Prediction predict(const LayerSource& source, const Plan& plan) {
  const LayerShape& shape = plan.shape;
  return predict(source, shape, expert_strips(shape, 0).bytes(),
                 expert_strips(shape, shape.experts_per_rank()).bytes());
}

Prediction predict(const LayerSource& source, const LayerShape& shape, std::int64_t expert_bytes,
                   std::int64_t shared_bytes) {
  const auto experts = static_cast<double>(shape.experts);
  const auto tokens = static_cast<double>(source.total_tokens());
  const double missed = 1 - static_cast<double>(shape.top_k) / experts;  // by one token
  std::int64_t busy_ranks = 0;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    if (source.tokens(rank) > 0) ++busy_ranks;
  }
  Prediction prediction;
  const double routed = experts * (1 - std::pow(missed, tokens));
  const auto shared = static_cast<double>(busy_ranks * shape.shared_experts);
  prediction.experts_hit = routed + shared;
  prediction.weight_bytes =
      routed * static_cast<double>(expert_bytes) + shared * static_cast<double>(shared_bytes);
  prediction.flops = 6 * static_cast<double>(shape.hidden) *
                     static_cast<double>(shape.intermediate) * tokens *
                     static_cast<double>(shape.top_k + shape.shared_experts);
  return prediction;
}

}  // namespace megamoe::cli
