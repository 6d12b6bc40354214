// What a call has to read and compute at least.
#pragma once

#include "cli/layer_source.hpp"
#include "plan/plan.hpp"

namespace megamoe::cli {

/// Over all ranks of a call with the source's tokens.
struct Prediction {
  double experts_hit = 0;   ///< expected, shared ones counted at every rank that has tokens
  double weight_bytes = 0;  ///< packed bytes of those
  double flops = 0;
};

/// Of a layer of this shape whose routed and shared experts have so many packed bytes each.
Prediction predict(const LayerSource& source, const LayerShape& shape, std::int64_t expert_bytes,
                   std::int64_t shared_bytes);
/// Expects routes that spread evenly: every choice of top_k experts is as likely as any other.
Prediction predict(const LayerSource& source, const Plan& plan);

}  // namespace megamoe::cli
