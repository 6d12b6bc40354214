// The CPU kernels of the MQA logits, one table of functions per instruction set.
//
// A panel is a tile of 64 keys as f32, transposed: panel[d][key]. A dot product is a chain
// fma(q, k, sum) over ascending d, the sum over heads a chain fma(weight, max(dot, 0), sum) over
// ascending h; the scale multiplies at the end. Every table gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megamoe/types.hpp"

namespace megamoe::mqa {

inline constexpr std::int64_t kTileKeys = 64;

struct RowArguments {
  const float* q;        ///< [heads][head_dim]
  const float* weights;  ///< [heads]
  std::int64_t heads;
  std::int64_t head_dim;
  const float* panel;   ///< [head_dim][64]
  const float* scales;  ///< [64]
  float* logits;        ///< [64]
};

struct CpuKernels {
  InstructionSet instruction_set;
  /// E4M3 [keys][head_dim] to panel[head_dim][64]; zeros for the keys that are missing to 64.
  void (*load_panel)(const std::byte* keys, std::int64_t count, std::int64_t head_dim,
                     float* panel);
  /// `count` E4M3 values, a multiple of 32.
  void (*decode)(const std::byte* bytes, std::int64_t count, float* values);
  /// All heads of one row against a panel.
  void (*row_logits)(const RowArguments& arguments);
};

const CpuKernels* scalar_mqa_kernels();
/// Null in a build for a processor other than x86.
const CpuKernels* avx2_mqa_kernels();
const CpuKernels* avx512_mqa_kernels();

/// Throws Error{unsupported} if this machine lacks the set.
const CpuKernels& cpu_kernels(InstructionSet set);

}  // namespace megamoe::mqa
