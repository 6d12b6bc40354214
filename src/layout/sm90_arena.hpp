// The arena of a GPU rank: what layout/arena.hpp is for the CPU's. Declared here once; host and
// kernels read this declaration.
//
// Token rows that the tensor cores read stand in block tiles: for each block and 128 columns, N
// rows of 128 bytes (N is the call's token tile), the 16-byte pieces of row n exchanged by n % 8,
// the order of the 128-byte swizzle. So a stage of the pipeline is one contiguous copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "layout/arena.hpp"
#include "layout/shape.hpp"
#include "layout/sm90_weights.hpp"

namespace megamoe::sm90 {

enum class GpuRegion : int {
  fault,
  call_state,
  barrier,
  grid,
  send_count,
  receive_count,
  block_arrival,
  block_readiness,
  source_list,
  row_target,
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
inline constexpr std::size_t kGpuRegions = static_cast<std::size_t>(GpuRegion::combine) + 1;

/// Columns of x that share one scale in the pool: the promotion interval of GEMM 1. FP4 weights: x
/// is rebased to it. FP8 weights have f32 scales per 128 x 128, and so has x.
constexpr int gemm1_interval(bool fp8_weights) {
  return fp8_weights ? 128 : 512;
}

/// Counters among the blocks of one rank's grid; one cache line each, two banks.
struct alignas(64) GridCounters {
  std::uint32_t scattered;             ///< blocks whose source lists are written
  alignas(64) std::uint32_t finished;  ///< blocks whose pushes are done
  alignas(64) std::uint32_t ticket;    ///< next task, counted from the grid's size
  alignas(64) std::uint32_t ticket2;   ///< the same of K2
  alignas(64) std::uint32_t open;      ///< 1 once K1 has passed barrier A: K2 may begin
};

/// What GEMM 1 and GEMM 2 must know of a pool row.
struct alignas(16) RowTarget {
  std::uint64_t result;  ///< address of its row in the combine region of the source rank
  float weight;
  std::int32_t unused;
};

/// The group's first fault, kept at rank 0; `abort` is set at every rank. All-zero: none.
struct DeviceFault {
  std::uint32_t abort;
  std::uint32_t claimed;
  std::uint32_t signal;  ///< WaitSignal
  std::int32_t rank;     ///< who waited
  std::uint32_t index;
  std::uint32_t complete;
  std::uint64_t seen;
  std::uint64_t wanted;
};

/// The first id beyond the experts that this rank's kernels met since the host last looked.
struct BadId {
  std::uint32_t claimed;
  std::int32_t token;
  std::int32_t slot;
  std::uint32_t complete;
  std::int64_t value;
};

struct FaultWords {
  DeviceFault fault;
  BadId bad_id;
};

struct GpuRegionSpan {
  const char* name;
  RegionKind kind;
  std::int64_t bank_bytes;
  std::int64_t banks;
  std::int64_t offset_bytes;

  constexpr std::int64_t bytes() const { return bank_bytes * banks; }
};

struct GpuArenaLayout {
  std::array<GpuRegionSpan, kGpuRegions> regions{};
  std::int64_t bytes = 0;

  constexpr const GpuRegionSpan& operator[](GpuRegion id) const {
    return regions[static_cast<std::size_t>(id)];
  }
};

/// Where the scale of a block's token stands among the block's scales of one interval: the four
/// tokens of sixteen whose sums one thread holds are neighbours, so that it reads them at once.
constexpr int scale_position(int token) {
  return token / 16 * 16 + token / 2 % 4 * 4 + token / 8 % 2 * 2 + token % 2;
}

constexpr std::int64_t gemm1_intervals(const LayerShape& shape) {
  return ceil_div(shape.hidden, gemm1_interval(weight_format(shape.recipe) == WeightFormat::fp8));
}

/// Sizes and offsets of all regions for a shape of recipe fp8_fp4 or fp8_fp8. Pure; equal on all
/// ranks.
constexpr GpuArenaLayout make_gpu_arena_layout(const LayerShape& shape) {
  constexpr auto control = RegionKind::control;
  constexpr auto data = RegionKind::data;
  const std::int64_t ranks = shape.ranks;
  const std::int64_t local = shape.experts_per_rank();
  const std::int64_t tokens = shape.max_tokens;
  const std::int64_t rows = shape.pool_rows();
  const std::int64_t blocks = shape.pool_blocks();
  GpuArenaLayout layout;
  layout.regions = {{
      {"fault", control, sizeof(FaultWords), 1, 0},
      {"call state", control, sizeof(CallState), 1, 0},
      {"barrier", control, kBarriers * ranks * 8, 1, 0},
      {"grid counters", control, sizeof(GridCounters), 2, 0},
      {"send count", control, shape.experts * 4, 2, 0},
      {"receive count", control, ranks * local * 4, 1, 0},
      {"block arrival", control, blocks * 4, 2, 0},
      {"block readiness", control, blocks * 4, 2, 0},
      {"source list", data, local * ranks * tokens * 4, 1, 0},
      {"row target", data, rows * std::int64_t{sizeof(RowTarget)}, 1, 0},
      {"x", data, tokens * shape.hidden, 1, 0},
      {"x scales", data, tokens * x_scale_row_bytes(shape.recipe, shape.hidden), 1, 0},
      {"expert ids", data, tokens * shape.top_k * 8, 1, 0},
      {"expert weights", data, tokens * shape.top_k * 4, 1, 0},
      {"GEMM-1 input", data, rows * round_up(shape.hidden, kTileColumns), 1, 0},
      {"GEMM-1 input scales", data, rows * gemm1_intervals(shape) * 4, 1, 0},
      {"GEMM-2 input", data, rows * shape.intermediate_groups() * kIntermediateGroup, 1, 0},
      {"GEMM-2 input scales", data, rows * shape.intermediate_groups() * 4, 1, 0},
      {"combine", data, shape.combine_slots() * tokens * shape.hidden * 2, 1, 0},
  }};
  std::int64_t offset = 0;
  for (GpuRegionSpan& region : layout.regions) {
    // A bank begins on lines of its own too, and the swizzle wants its tiles on 1024 bytes.
    region.bank_bytes = round_up(region.bank_bytes, kRegionAlignment);
    region.offset_bytes = offset;
    offset = round_up(offset + region.bytes(), 1024);
  }
  layout.bytes = round_up(offset, kArenaAlignment);
  return layout;
}

}  // namespace megamoe::sm90
