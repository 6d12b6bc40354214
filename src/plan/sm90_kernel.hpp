// What one instantiation of the kernels is made for, and how it cuts its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/integers.hpp"
#include "layout/sm90_arena.hpp"
#include "layout/sm90_weights.hpp"
#include "schedule/walk.hpp"

namespace megamoe::sm90 {

inline constexpr int kWarpgroup = 128;
inline constexpr int kDispatchWarps = 2;
/// Tasks that the weights loader may be ahead of the math warps.
inline constexpr int kTaskRing = 4;
/// Shared memory that a block of compute capability 9.0 may ask for.
inline constexpr std::int64_t kMaxSharedBytes = 232448;
inline constexpr std::int64_t kSmRegisters = 65536;

/// What one launch does of a call: all of it, or its part of the split. K1 counts, pulls and does
/// GEMM 1; K2 does GEMM 2 and pushes. K3, combine, has no tiles and so no KernelShape.
enum class KernelPart : int { fused, k1, k2 };

constexpr bool does_gemm1(KernelPart part) {
  return part != KernelPart::k2;
}
constexpr bool does_gemm2(KernelPart part) {
  return part != KernelPart::k1;
}
constexpr TaskSet task_set(KernelPart part) {
  if (part == KernelPart::fused) return TaskSet::all;
  return part == KernelPart::k1 ? TaskSet::pull_and_gemm1 : TaskSet::gemm2;
}

/// The tile that a kernel is instantiated for.
struct KernelShape {
  int tokens;        ///< N: tokens of a block, the token tile of wgmma
  int math_groups;   ///< math warpgroups, one slab of 64 rows each: 2 or 4
  bool fp8 = false;  ///< weights in E4M3; else in E2M1

  constexpr int math_threads() const { return math_groups * kWarpgroup; }
  constexpr int math_warps() const { return math_groups * 4; }
  constexpr int threads() const { return math_threads() + kWarpgroup; }
  constexpr int rows() const { return math_groups * kSlabRows; }
  /// Weight tiles of 128 rows in one stage.
  constexpr int weight_tiles() const { return math_groups / 2; }
  /// Tiles of rows() rows in a GEMM-1 task, which makes 128 intermediates from 256 rows.
  constexpr int gemm1_tiles() const { return 256 / rows(); }

  constexpr int token_bytes() const { return tokens * kTileColumns; }
  constexpr int slab_bytes() const { return fp8 ? kFp8SlabBytes : kSlabBytes; }
  constexpr int weight_tile_bytes() const { return fp8 ? kFp8TileBytes : kWeightTileBytes; }
  constexpr int weight_bytes() const { return weight_tiles() * weight_tile_bytes(); }
  /// k blocks of GEMM 1 that share a scale.
  constexpr int gemm1_interval_blocks() const { return gemm1_interval(fp8) / kTileColumns; }
  /// Weights, then one f32 scale per token.
  constexpr int weight_stage_bytes() const { return weight_bytes() + tokens * 4; }

  /// Registers per thread at launch: what __launch_bounds__ leaves, in steps of 8. They are the
  /// block's pool: the math warps can take only what the loaders give back.
  constexpr int launch_registers() const {
    return static_cast<int>(kSmRegisters / threads() / 8 * 8);
  }
  /// What the sums and fragments of the tile leave over, in steps that ptxas spills nothing with.
  constexpr int loader_registers(KernelPart part) const {
    if (math_groups == 4) return 64;
    if (part == KernelPart::k2) return 40;  // nothing to pull
    return tokens <= 144 ? 72 : tokens <= 160 ? 64 : 56;
  }
  constexpr int math_registers(KernelPart part) const {
    return (launch_registers() + (launch_registers() - loader_registers(part)) / math_groups) / 8 *
           8;
  }
};

/// The tiles that a build holds kernels for, rising. Up to 64 tokens memory is the
/// limit: four math warpgroups keep more decoding in flight. Above, the tensor cores are: two
/// warpgroups have the registers for the wide tile. 176 is the widest whose sums, partial sums and
/// fragments leave a thread of 232 registers enough for everything else.
inline constexpr KernelShape kKernelShapes[] = {{16, 4},  {32, 4},  {48, 4},  {64, 2},
                                                {80, 2},  {96, 2},  {112, 2}, {128, 2},
                                                {144, 2}, {160, 2}, {176, 2}};

/// The widest tile of K1 and K2: at 176 ptxas spills registers of K1.
inline constexpr int kWidestSplitTile = 160;
constexpr bool has_kernel(const KernelShape& shape, KernelPart part) {
  if (shape.fp8) {
    // Fewer tiles: each is three kernels more to compile. At 176 ptxas spills.
    for (const int tokens : {16, 32, 64, 96, 128, 144, 160}) {
      if (shape.tokens == tokens) return true;
    }
    return false;
  }
  return part == KernelPart::fused || shape.tokens <= kWidestSplitTile;
}

/// A task as the weights loader hands it to the other roles of its block. They read it where it
/// stands, and release the slot when the task is done.
struct TaskSlot {
  std::int32_t kind;  ///< TaskSlotKind
  std::int32_t expert;
  std::int32_t block;
  std::int32_t part;
  std::int32_t valid;  ///< rows of the block that hold a route, at least 1
};
enum TaskSlotKind : std::int32_t { kTaskEnd, kTaskGemm1, kTaskGemm2 };

/// State of the call, read once by every block and kept in shared memory: registers are dear.
struct CallView {
  std::uint32_t number;  ///< 1 for the arena's first call
  std::uint32_t bank;    ///< of the counters that this call uses; it clears the other
  std::int32_t tokens;   ///< T
};

/// Twelve stages of the smallest shape are all its shared memory; more never helped.
inline constexpr int kMaxStages = 12;

/// The front of a block's shared memory, at offsets that the compiler knows: the main loop has no
/// time to fetch them.
struct SharedFront {
  std::uint64_t full[kMaxStages];  ///< barriers
  std::uint64_t empty[kMaxStages];
  std::uint64_t task_full[kTaskRing];
  std::uint64_t task_empty[kTaskRing];
  std::uint64_t dispatch_full[kDispatchWarps];
  TaskSlot tasks[kTaskRing];
  CallView call;
  std::uint32_t left;                       ///< the block gives the call up
  alignas(8) std::byte walk[sizeof(Walk)];  ///< the weights loader's: registers are dear there too
};
inline constexpr int kSharedFrontBytes = 1024;
static_assert(sizeof(SharedFront) <= kSharedFrontBytes);

/// Offsets in the dynamic shared memory of a block, behind the front.
struct SharedLayout {
  std::int32_t stages = 0;
  std::int32_t tokens = 0;   ///< stage s: tokens + s * token_bytes()
  std::int32_t weights = 0;  ///< stage s: weights + s * weight_stage_bytes()
  std::int32_t dispatch = 0;
  std::int32_t dispatch_bytes = 0;  ///< per dispatch warp: a row, then its scales
  std::int32_t dispatch_scales = 0;
  std::int32_t targets = 0;  ///< RowTarget[tokens] per math warpgroup
  std::int32_t factors = 0;  ///< f32 [64] per math warpgroup: of the rows of its slab
  std::int32_t maxima = 0;
  std::int32_t reciprocals = 0;
  std::int32_t transpose = 0;    ///< 1024 bytes per math warp
  std::int32_t first_block = 0;  ///< i64 [local experts + 1]
  std::int32_t first_row = 0;    ///< i32 [local experts + 1]: valid rows before each
  std::int32_t counts = 0;       ///< u32 [ranks][local experts]
  std::int32_t bytes = 0;
};

/// The layout with this many stages; `bytes` may exceed what a block can have.
constexpr SharedLayout shared_layout(const KernelShape& shape, std::int64_t hidden,
                                     std::int64_t experts, std::int64_t ranks, int stages) {
  SharedLayout l;
  std::int64_t end = kSharedFrontBytes;
  const auto take = [&end](std::int64_t bytes, std::int64_t alignment) {
    const std::int64_t begin = round_up(end, alignment);
    end = begin + bytes;
    return static_cast<std::int32_t>(begin);
  };
  l.stages = stages;
  l.tokens = take(std::int64_t{stages} * shape.token_bytes(), 1024);
  l.weights = take(std::int64_t{stages} * shape.weight_stage_bytes(), 128);
  l.dispatch_scales = static_cast<std::int32_t>(round_up(hidden, 16));
  l.dispatch_bytes =
      static_cast<std::int32_t>(l.dispatch_scales + round_up(ceil_div(hidden, kScaleGroup), 16));
  l.dispatch = take(std::int64_t{kDispatchWarps} * l.dispatch_bytes, 128);
  l.targets = take(std::int64_t{shape.math_groups} * shape.tokens * 16, 16);
  l.factors = take(std::int64_t{shape.math_groups} * kSlabRows * 4, 16);
  l.maxima = take(shape.tokens * 4, 16);
  l.reciprocals = take(shape.tokens * 4, 16);
  l.transpose = take(std::int64_t{shape.math_warps()} * 1024, 128);
  l.first_block = take((experts + 1) * 8, 8);
  l.first_row = take((experts + 1) * 4, 4);
  l.counts = take(ranks * experts * 4, 4);
  l.bytes = static_cast<std::int32_t>(end);
  return l;
}

/// The layout with as many stages as fit; stages == 0 when fewer than two do.
constexpr SharedLayout best_shared_layout(const KernelShape& shape, std::int64_t hidden,
                                          std::int64_t experts, std::int64_t ranks) {
  for (int stages = kMaxStages; stages >= 2; --stages) {
    const SharedLayout layout = shared_layout(shape, hidden, experts, ranks, stages);
    if (layout.bytes <= kMaxSharedBytes) return layout;
  }
  return {};
}

}  // namespace megamoe::sm90
