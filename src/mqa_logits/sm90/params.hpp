// What the kernel of the MQA logits is given, by value, and where things stand in its shared
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "megamoe/mqa_logits.hpp"

#include "base/integers.hpp"

namespace megamoe::mqa {

/// Columns of one wgmma: query rows times heads.
inline constexpr int kGroupColumns = 128;
/// A block of query rows is two groups.
inline constexpr int kBlockColumns = 2 * kGroupColumns;
/// Keys of a stage: two halves of what a wgmma takes.
inline constexpr int kStageKeys = 128;
inline constexpr int kHalfKeys = 64;
/// Math warpgroups: one for each half of the keys and each group of the columns. Four, since the
/// tensor cores fill the accumulators of some while the others reduce theirs.
inline constexpr int kMathGroups = 4;
inline constexpr int kMathWarps = kMathGroups * 4;
inline constexpr int kMaxWarps = kMathWarps + 3;

/// Where the dense and the paged form differ is told by `block_table`.
struct Params {
  CUtensorMap q;       ///< {head_dim, heads, rows}: boxes of a group; zeros outside
  CUtensorMap kv;      ///< dense {head_dim, keys, 1}, paged {head_dim, 64, blocks}: 64 keys
  CUtensorMap scales;  ///< {keys, 1} or {64, blocks}: 64 keys; NaN outside
  const void* weights;
  void* logits;
  const std::int32_t* begins;
  const std::int32_t* ends;
  const std::int32_t* contexts;
  const std::int32_t* block_table;  ///< null: dense
  std::int64_t row_stride;
  std::int64_t max_blocks;
  std::int32_t rows;
  std::int32_t columns;  ///< keys, or max_context
  std::int32_t heads;
  std::int32_t next_n;           ///< paged
  std::int32_t sequence_blocks;  ///< paged: row blocks of a sequence
  std::int32_t row_blocks;
  MqaContextLengths lengths;
  MqaLogitFormat format;
  MqaOutside outside;
};

/// One instantiation.
struct KernelShape {
  int head_dim;  ///< 32, 64 or 128
  int heads;     ///< 16, 32 or 64: the call's, padded
  MqaWeightFormat weights;

  constexpr bool f16() const { return weights == MqaWeightFormat::f16; }
  constexpr int group_rows() const { return kGroupColumns / heads; }
  constexpr int block_rows() const { return kBlockColumns / heads; }
  constexpr int stages() const { return 8; }
  constexpr int group_bytes() const { return kGroupColumns * head_dim; }
  constexpr int query_bytes() const { return kBlockColumns * head_dim; }
  constexpr int half_bytes() const { return kHalfKeys * head_dim; }
  /// Entering a row block takes about as long as so many tiles, and more when q is scaled.
  constexpr int entry_cost() const { return f16() ? 5 : 2; }
  /// Warps that prepare query rows. Scaling q for f16 weights takes more than loading it; but f32
  /// weights take 112 registers of a thread, and with one warp more a thread would get 104.
  constexpr int prepare_warps() const { return f16() ? 2 : 1; }
  constexpr int prepare_threads() const { return prepare_warps() * 32; }
  /// With the warp that streams keys.
  constexpr int threads() const { return (kMathWarps + 1 + prepare_warps()) * 32; }
};

/// What the math warps need to know about a block of rows.
struct Segment {
  std::int32_t tiles;      ///< of kStageKeys; 0: there is no further segment
  std::int32_t first_key;  ///< of the first tile
  std::int32_t first_row;
  std::int32_t groups;      ///< 1 when the second group has no rows
  std::int32_t begins[16];  ///< of each row; 0 and 0 where there is none
  std::int32_t ends[16];
  float factors[16];  ///< f16 weights: what their scaling left out
};

/// Where a thread block is in its part of the line of tiles (walk.cuh).
struct Walk {
  std::int64_t left;    ///< of the part
  std::int32_t block;   ///< of rows
  std::int32_t offset;  ///< in the block's piece of the line
};

/// Offsets in shared memory.
template <KernelShape S>
struct SharedMemory {
  alignas(1024) std::byte q[2][S.query_bytes()];
  alignas(1024) std::byte kv[S.stages()][2 * S.half_bytes()];
  alignas(128) float scales[S.stages()][kStageKeys];
  alignas(16) float weights[2][kBlockColumns];  ///< f32, or f16 in the first half
  float scaled_weights[kBlockColumns];          ///< of the next block, on their way
  Segment segments[2];
  std::int64_t warp_sums[kMaxWarps];
  Walk walk;  ///< where this thread block begins
  std::uint64_t kv_full[S.stages()];
  std::uint64_t kv_empty[S.stages()];
  std::uint64_t q_raw[2];
  std::uint64_t q_full[2];
  std::uint64_t q_empty[2];
};

inline constexpr std::int64_t kMaxSharedBytes = 232448;

}  // namespace megamoe::mqa
