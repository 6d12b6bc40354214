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
/// Keys of a stage: 64 for each of the two math warpgroups.
inline constexpr int kStageKeys = 128;
inline constexpr int kHalfKeys = 64;
inline constexpr int kMathGroups = 2;
inline constexpr int kThreads = (kMathGroups + 1) * 128;

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
  /// Registers of a thread of each warpgroup: 504 for the three together. Scaling q for f16 weights
  /// takes more than loading it.
  constexpr int math_registers() const { return f16() ? 208 : 224; }
  constexpr int loader_registers() const { return f16() ? 88 : 56; }
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

/// Offsets in shared memory.
template <KernelShape S>
struct SharedMemory {
  alignas(1024) std::byte q[2][S.query_bytes()];
  alignas(1024) std::byte kv[S.stages()][kMathGroups * S.half_bytes()];
  alignas(128) float scales[S.stages()][kStageKeys];
  alignas(16) float weights[2][kBlockColumns];  ///< f32, or f16 in the first half
  float scaled_weights[kBlockColumns];          ///< f16: on their way
  Segment segments[2];
  std::int64_t warp_sums[kThreads / 32];
  std::int64_t tiles;       ///< of this thread block
  std::int64_t first_tile;  ///< in first_block
  std::int32_t first_block;
  std::uint64_t kv_full[S.stages()];
  std::uint64_t kv_empty[S.stages()];
  std::uint64_t q_raw[2];
  std::uint64_t q_full[2];
  std::uint64_t q_empty[2];
};

inline constexpr std::int64_t kMaxSharedBytes = 232448;

}  // namespace megamoe::mqa
