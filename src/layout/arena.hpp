// The arena: one symmetric allocation per rank, cut into regions. Declared here once; host, device,
// tests and the plan's report read this declaration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "layout/shape.hpp"

namespace megamoe {

enum class RegionId : int {
  fault,
  barrier,
  call_state,
  send_count,
  receive_count,
  receive_total,
  ticket,
  block_arrival,
  block_readiness,
  source_list,
  row_source,
  row_weight,
  x,
  x_scales,
  expert_ids,
  expert_weights,
  gemm1_input,
  gemm1_input_scales,
  gemm2_input,
  gemm2_input_scales,
  combine,
};
inline constexpr std::size_t kRegions = static_cast<std::size_t>(RegionId::combine) + 1;

/// Control words are zeroed once, when the arena is made; data may hold anything before it is
/// written.
enum class RegionKind { control, data };

struct Region {
  RegionId id = RegionId::fault;
  const char* name = "";
  RegionKind kind = RegionKind::data;
  std::int64_t offset_bytes = 0;
  std::int64_t bank_bytes = 0;  ///< one bank: what one call uses
  std::int64_t banks = 1;       ///< 2: calls take turns, each clears the other's bank

  constexpr std::int64_t bytes() const { return bank_bytes * banks; }
};

/// Who a pool row is: where its token came from and where its result goes. Slots from top_k on are
/// shared experts.
struct RowSource {
  std::int32_t rank;
  std::int32_t token;
  std::int32_t slot;
};

/// State of the rank's calls, kept in the arena since a replayed graph repeats its arguments.
struct alignas(64) CallState {
  std::uint32_t call;        ///< calls that this arena has begun; the last one's parity is its bank
  std::uint32_t group_call;  ///< calls that the group has begun, kept in its first arena
};

/// Ticket counters of the rank, one cache line each.
enum class Ticket : int { fused, k1, k2 };
inline constexpr std::int64_t kTickets = 3;
struct alignas(64) TicketWord {
  std::uint64_t next;
};

/// Group barriers: A after scatter, B before combine.
enum class BarrierId : int { a, b };
inline constexpr std::int64_t kBarriers = 2;

struct ArenaLayout {
  std::array<Region, kRegions> regions{};
  std::int64_t bytes = 0;

  constexpr const Region& operator[](RegionId id) const {
    return regions[static_cast<std::size_t>(id)];
  }
};

/// A region begins on its own cache lines; 256 bytes also satisfy every copy engine.
inline constexpr std::int64_t kRegionAlignment = 256;
/// Arenas are mapped, so their size is whole pages.
inline constexpr std::int64_t kArenaAlignment = 4096;
inline constexpr std::int64_t kFaultRegionBytes = 512;

/// Sizes and offsets of all regions for a shape. Pure; equal on all ranks.
constexpr ArenaLayout make_arena_layout(const LayerShape& shape) {
  constexpr auto kControl = RegionKind::control;
  constexpr auto kData = RegionKind::data;
  const std::int64_t ranks = shape.ranks;
  const std::int64_t local = shape.experts_per_rank();
  const std::int64_t tokens = shape.max_tokens;
  const std::int64_t rows = shape.pool_rows();
  const std::int64_t blocks = shape.pool_blocks();
  const Recipe recipe = shape.recipe;
  const std::int64_t h = shape.hidden;
  const std::int64_t i = shape.intermediate;

  ArenaLayout layout;
  layout.regions = {{
      {RegionId::fault, "fault", kControl, 0, kFaultRegionBytes, 1},
      {RegionId::barrier, "barrier", kControl, 0, kBarriers * ranks * 8, 1},
      {RegionId::call_state, "call state", kControl, 0, sizeof(CallState), 1},
      {RegionId::send_count, "send count", kControl, 0, shape.experts * 8, 2},
      {RegionId::receive_count, "receive count", kControl, 0, ranks * local * 8, 1},
      {RegionId::receive_total, "receive total", kControl, 0, local * 8, 2},
      {RegionId::ticket, "ticket", kControl, 0, kTickets * sizeof(TicketWord), 2},
      {RegionId::block_arrival, "block arrival", kControl, 0, blocks * 4, 2},
      {RegionId::block_readiness, "block readiness", kControl, 0,
       blocks * shape.readiness_words() * 8, 2},
      {RegionId::source_list, "source list", kData, 0, local * ranks * tokens * 4, 1},
      {RegionId::row_source, "row source", kData, 0, rows * std::int64_t{sizeof(RowSource)}, 1},
      {RegionId::row_weight, "row weight", kData, 0, rows * 4, 1},
      {RegionId::x, "x", kData, 0, tokens * x_row_bytes(recipe, h), 1},
      {RegionId::x_scales, "x scales", kData, 0, tokens * x_scale_row_bytes(recipe, h), 1},
      {RegionId::expert_ids, "expert ids", kData, 0, tokens * shape.top_k * 8, 1},
      {RegionId::expert_weights, "expert weights", kData, 0, tokens * shape.top_k * 4, 1},
      {RegionId::gemm1_input, "GEMM-1 input", kData, 0, rows * x_row_bytes(recipe, h), 1},
      {RegionId::gemm1_input_scales, "GEMM-1 input scales", kData, 0,
       rows * x_scale_row_bytes(recipe, h), 1},
      {RegionId::gemm2_input, "GEMM-2 input", kData, 0, rows * intermediate_row_bytes(recipe, i),
       1},
      {RegionId::gemm2_input_scales, "GEMM-2 input scales", kData, 0,
       rows * intermediate_scale_row_bytes(recipe, i), 1},
      {RegionId::combine, "combine", kData, 0, shape.combine_slots() * tokens * h * 2, 1},
  }};
  std::int64_t offset = 0;
  for (Region& region : layout.regions) {
    region.offset_bytes = offset;
    offset = round_up(offset + region.bytes(), kRegionAlignment);
  }
  layout.bytes = round_up(offset, kArenaAlignment);
  return layout;
}

}  // namespace megamoe
