// The sizes that every region, tile and loop derives from: one plain value, equal on all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "megamoe/types.hpp"

#include "base/integers.hpp"
#include "numerics/recipe.hpp"

namespace megamoe {

/// BLOCK_M: rows of one expert that become ready together. 16 is the least that fills a vector
/// tile, 192 the widest token tile of the matrix units.
inline constexpr std::int64_t kBlockRows[] = {16, 32, 64, 96, 128, 192};
inline constexpr std::int64_t kMinBlockRows = 16;
inline constexpr std::int64_t kMaxBlockRows = 192;
/// The least common multiple of the candidates: capacities are rounded up to it, so that any of
/// them tiles a pool.
inline constexpr std::int64_t kCapacityStep = 384;
inline constexpr std::int64_t kMaxTopK = 32;
/// Intermediate features per GEMM-1 task: the group of the FP8 intermediate's scale.
inline constexpr std::int64_t kIntermediateGroup = 128;

struct LayerShape {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t experts = 0;
  std::int64_t shared_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t ranks = 0;
  std::int64_t max_tokens = 0;  ///< rounded up to kCapacityStep
  Recipe recipe = Recipe::fp8_fp4;
  std::optional<WeightFormat> shared_weights;  ///< of the shared experts, where not the recipe's

  /// Experts are placed in contiguous ranges of this many; the last ranks may own fewer, or none.
  constexpr std::int64_t experts_per_rank() const { return ceil_div(experts, ranks); }
  /// Experts that have rows in a rank's pool: its routed ones, then the shared ones.
  constexpr std::int64_t pool_experts() const { return experts_per_rank() + shared_experts; }
  /// How the matrices of a pool expert are stored.
  constexpr WeightFormat expert_format(std::int64_t pool_expert) const {
    const WeightFormat routed = weight_format(recipe);
    return pool_expert < experts_per_rank() ? routed : shared_weights.value_or(routed);
  }
  /// Slots of the combine region: the token's own list, then one for each shared expert.
  constexpr std::int64_t combine_slots() const { return top_k + shared_experts; }

  /// Rows of the pool when every token of every rank is routed here, and each expert's last block
  /// is padded.
  constexpr std::int64_t pool_rows() const {
    const std::int64_t routed = ranks * max_tokens * min64(top_k, experts_per_rank());
    const std::int64_t padding = (kMaxBlockRows - 1) * pool_experts();
    return round_up(routed + shared_experts * max_tokens + padding, kCapacityStep);
  }
  /// Blocks of the pool at the smallest BLOCK_M.
  constexpr std::int64_t pool_blocks() const { return pool_rows() / kMinBlockRows; }
  /// GEMM-1 tasks of a block: each makes kIntermediateGroup intermediates and owns one readiness
  /// bit.
  constexpr std::int64_t intermediate_groups() const {
    return ceil_div(intermediate, kIntermediateGroup);
  }
  constexpr std::int64_t readiness_words() const { return ceil_div(intermediate_groups(), 64); }

  friend constexpr bool operator==(const LayerShape&, const LayerShape&) = default;
};

constexpr LayerShape make_shape(const LayerConfig& config, std::int64_t ranks) {
  const bool differs =
      config.shared_experts > 0 && shared_weight_format(config) != weight_format(config.recipe);
  return {.hidden = config.hidden,
          .intermediate = config.intermediate,
          .experts = config.experts,
          .shared_experts = config.shared_experts,
          .top_k = config.top_k,
          .ranks = ranks,
          .max_tokens = round_up(config.max_tokens, kCapacityStep),
          .recipe = config.recipe,
          .shared_weights = differs ? config.shared_weights : std::nullopt};
}

}  // namespace megamoe
