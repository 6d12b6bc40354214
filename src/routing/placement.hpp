// Which rank owns an expert. The one function to replace for another placement.
#pragma once

#include <cstdint>

#include "layout/shape.hpp"

namespace megamoe {

struct ExpertHome {
  std::int64_t rank;
  std::int64_t local_expert;
};

/// Contiguous ranges of ceil(E / R) experts per rank. expert in [0, experts).
constexpr ExpertHome home_of(const LayerShape& shape, std::int64_t expert) {
  const std::int64_t per_rank = shape.experts_per_rank();
  return {expert / per_rank, expert % per_rank};
}

/// The inverse: may be >= shape.experts for a rank that owns fewer than the others.
constexpr std::int64_t expert_of(const LayerShape& shape, const ExpertHome& home) {
  return home.rank * shape.experts_per_rank() + home.local_expert;
}

/// Routed experts that `rank` owns; 0 for the last ranks when there are more ranks than ranges.
constexpr std::int64_t local_experts(const LayerShape& shape, std::int64_t rank) {
  const std::int64_t left = shape.experts - rank * shape.experts_per_rank();
  return max64(0, min64(left, shape.experts_per_rank()));
}

}  // namespace megamoe
