// Layers and inputs made from a seed: the same bits on every machine and at every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "megamoe/types.hpp"
#include "megamoe/weights.hpp"

namespace megamoe::cli {

/// The routed experts [first, last) and all shared ones; other entries of `experts` are empty
/// views, which no rank reads. Weights are in the layer's own formats, with scales over eight
/// binades; biases if `activation` is swiglu_oai.
LayerWeights synthetic_weights(const LayerConfig& config, std::uint64_t seed, std::int64_t first,
                               std::int64_t last);

/// Bytes of one expert's matrices among them, in a format.
std::int64_t synthetic_expert_bytes(const LayerConfig& config, WeightFormat format);

/// Tokens of one rank: x normal with a magnitude per token, top-k of uniform scores, weights that
/// sum to one.
struct SyntheticInput {
  std::vector<BFloat16> x;            ///< [tokens, hidden]
  std::vector<std::int64_t> experts;  ///< [tokens, top_k]
  std::vector<float> weights;         ///< [tokens, top_k]
};
SyntheticInput synthetic_input(const LayerConfig& config, std::uint64_t seed, std::int64_t rank,
                               std::int64_t tokens);

}  // namespace megamoe::cli
