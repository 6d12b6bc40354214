// The specification of the layer's arithmetic: plain loops, sums in f64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megamoe/types.hpp"
#include "megamoe/weights.hpp"

namespace megamoe {

/// x as the recipe's operands hold it, exact: x[t * hidden + c]. From bf16 values: rounds them into
/// the recipe's format first.
std::vector<double> reference_x(Recipe recipe, std::int64_t hidden, std::span<const BFloat16> x);

/// The same from values and scales as they stand in a Batch.
std::vector<double> reference_x(Recipe recipe, std::int64_t hidden, std::int64_t tokens,
                                std::span<const std::byte> values,
                                std::span<const std::byte> scales);

/// y[t] in f32, each value already rounded to bf16. Makes the roundings of the contract (bf16 of
/// GEMM 1 and of each route's GEMM 2, the requantisation between them, bf16 of the sum) and no
/// others; knows no ranks, no intervals and no order but the slots'. A token with an id beyond the
/// experts gives NaN. x: [tokens, hidden] from reference_x; experts, weights: [tokens, top_k].
std::vector<float> reference_forward(const LayerConfig& config, const LayerWeights& layer,
                                     std::span<const double> x,
                                     std::span<const std::int64_t> experts,
                                     std::span<const float> weights);

/// ||a - b|| / ||b|| over all elements, b the reference. Elements where both are NaN (a token that
/// has one, an id beyond the experts) are equal; where only one is, the distance is infinite.
double relative_l2(std::span<const float> a, std::span<const float> b);

/// 1 - 2 <a, b> / (<a, a> + <b, b>), the symmetric difference that the field's tests print.
double symmetric_difference(std::span<const float> a, std::span<const float> b);

}  // namespace megamoe
