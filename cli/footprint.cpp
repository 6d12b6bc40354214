#include "cli/footprint.hpp"

#include "api/layer_plan.hpp"
#include "base/check.hpp"
#include "cli/text.hpp"
#include "cpu/engine.hpp"
#include "cpu/packed_weights.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::cli {
namespace {

constexpr std::int64_t kPageBytes = 4096;
// One part in this many on top: page tables, inputs and outputs, heaps.
constexpr std::int64_t kMargin = 16;

/// Rows of the pool that hold rows when routes spread evenly, the last block of each expert padded.
std::int64_t expected_pool_rows(const Plan& plan, std::int64_t tokens) {
  const LayerShape& shape = plan.shape;
  const std::int64_t rows_per_expert = ceil_div(shape.ranks * tokens * shape.top_k, shape.experts);
  const std::int64_t routed = shape.experts_per_rank() * round_up(rows_per_expert, plan.block_rows);
  const std::int64_t shared = shape.shared_experts * round_up(tokens, plan.block_rows);
  return min64(shape.pool_rows(), routed + shared);
}

std::int64_t part_of(const Region& region, std::int64_t part, std::int64_t whole) {
  return min64(region.bytes(), round_up(ceil_div(region.bytes() * part, whole), kPageBytes));
}

}  // namespace

Footprint footprint_of(const LayerSource& source, const Plan& plan) {
  const LayerConfig& config = source.config();
  const LayerShape& shape = plan.shape;
  const auto [gemm1, gemm2] = expert_strips(shape, 0);
  Footprint footprint;
  footprint.arena_bytes = plan.arena.bytes;
  footprint.expert_bytes = gemm1.bytes() + gemm2.bytes();
  footprint.weight_bytes = packed_matrix_bytes(shape);
  if (config.activation == Activation::swiglu_oai) {
    footprint.weight_bytes +=
        4 * shape.pool_experts() * kStripLanes * (gemm1.strips + gemm2.strips);
  }
  footprint.scratch_bytes = Engine::scratch_bytes(plan);
  footprint.source_bytes = source.made_bytes();
  return footprint;
}

std::int64_t touched_bytes(const Region& region, const Plan& plan, std::int64_t tokens) {
  switch (region.id) {
    case RegionId::source_list: {
      // One list per expert and source rank, of which the front is written.
      const std::int64_t lists = plan.shape.experts_per_rank() * plan.shape.ranks;
      return min64(region.bytes(), lists * kPageBytes);
    }
    case RegionId::row_source:
    case RegionId::row_weight:
    case RegionId::gemm1_input:
    case RegionId::gemm1_input_scales:
    case RegionId::gemm2_input:
    case RegionId::gemm2_input_scales:
      return part_of(region, expected_pool_rows(plan, tokens), plan.shape.pool_rows());
    case RegionId::x:
    case RegionId::x_scales:
    case RegionId::expert_ids:
    case RegionId::expert_weights:
    case RegionId::combine:
      return part_of(region, min64(tokens, plan.shape.max_tokens), plan.shape.max_tokens);
    default:
      return region.bytes();  // control words: every call clears what the next one uses
  }
}

void check_footprint(const Footprint& footprint, std::int64_t ranks, const HostMemory& host) {
  const std::int64_t wanted = footprint.bytes() + footprint.bytes() / kMargin;
  if (wanted <= host.available_bytes / ranks) return;
  fail(ErrorCode::out_of_memory,
       "{} ranks need {} each, {} in all (packed weights {}, arena {}, scratch {}, weights before "
       "they are packed {}), and {} are available ({}): take a smaller layer, fewer --tokens or "
       "--experts, or a larger host",
       ranks, human_bytes(footprint.bytes()), human_bytes(ranks * footprint.bytes()),
       human_bytes(footprint.weight_bytes), human_bytes(footprint.arena_bytes),
       human_bytes(footprint.scratch_bytes), human_bytes(footprint.source_bytes),
       human_bytes(host.available_bytes), host.limited_by);
}

void check_memory(const LayerSource& source, const LayerOptions& options, RankTeam& team) {
  const Plan plan = plan_layer(source.config(), source.ranks(), options, team.cores_per_rank());
  team.agree_on(plan);
  check_footprint(footprint_of(source, plan), source.ranks(), available_host_memory());
}

}  // namespace megamoe::cli
