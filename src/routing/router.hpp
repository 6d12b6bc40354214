// The choice of experts for one token from its logits.
#pragma once

#include <cstdint>
#include <span>

#include "megamoe/router.hpp"

namespace megamoe {

/// logits: [experts], the router's bias included; experts, weights: [top_k], best first. See
/// RouterConfig for the rule. Always gives top_k different ids in range, whatever the logits are: a
/// NaN ranks below every number, and weighs nothing.
void choose_experts(const RouterConfig& router, std::span<const float> logits,
                    std::span<std::int64_t> experts, std::span<float> weights);

}  // namespace megamoe
