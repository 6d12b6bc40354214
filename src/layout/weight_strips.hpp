// Packed weights of the CPU kernels: in the order in which they are read.
//
// A strip is 32 output features: two half-strips of 16, one vector register of AVX-512 each. GEMM
// 1: the first half is 16 gate rows, the second the same 16 up rows, so that a row's gate and up
// meet in two registers. GEMM 2: 32 neighbouring rows of W2. A chunk is 128 columns of a strip and
// lies in one piece, scales first. So one strip is one forward stream.
//
// Scales, then values:
//   fp4   [half][group of 32][lane] UE8M0; for each 8 columns and half 16 lanes x 8 nibbles
//   fp8   [half][lane] f32;                for each 4 columns and half 16 lanes x 4 bytes
//   bf16  none;                            for each 2 columns and half 16 lanes x 2 values
// The scales of fp4 and fp8 are two lines of 64 bytes, one for each half.
//
// A lane is always a 32-bit word, whose least significant part is the lowest column. Rows and
// columns beyond the matrix are zero.
#pragma once

#include <cstdint>

#include "megamoe/weights.hpp"

#include "base/integers.hpp"

namespace megamoe {

inline constexpr std::int64_t kStripLanes = 32;
inline constexpr std::int64_t kHalfStripLanes = 16;
inline constexpr std::int64_t kChunkColumns = 128;

/// Bytes of the scales in front of a chunk.
constexpr std::int64_t chunk_header_bytes(WeightFormat format) {
  return format == WeightFormat::bf16 ? 0 : 128;
}

/// Columns in one 32-bit lane.
constexpr std::int64_t columns_per_word(WeightFormat format) {
  switch (format) {
    case WeightFormat::fp4:
      return 8;
    case WeightFormat::fp8:
      return 4;
    case WeightFormat::bf16:
      return 2;
  }
  return 0;
}

constexpr std::int64_t chunk_bytes(WeightFormat format) {
  return chunk_header_bytes(format) + kChunkColumns / columns_per_word(format) * kStripLanes * 4;
}

/// Where the 32-bit word with `column` (0 to 127) of `lane` (0 to 31) stands in a chunk, in bytes.
constexpr std::int64_t word_offset(WeightFormat format, std::int64_t lane, std::int64_t column) {
  return chunk_header_bytes(format) + (column / columns_per_word(format) * kStripLanes + lane) * 4;
}

/// Where the scale of `lane` for `column` stands in a chunk of fp4 (one byte) or fp8 (four bytes).
constexpr std::int64_t scale_offset(WeightFormat format, std::int64_t lane, std::int64_t column) {
  const std::int64_t half = lane / kHalfStripLanes;
  const std::int64_t in_half = lane % kHalfStripLanes;
  if (format == WeightFormat::fp4) return half * 64 + column / 32 * kHalfStripLanes + in_half;
  return half * 64 + in_half * 4;
}

/// The shape of one packed matrix.
struct StripShape {
  WeightFormat format = WeightFormat::bf16;
  std::int64_t strips = 0;
  std::int64_t chunks = 0;

  constexpr std::int64_t strip_bytes() const { return chunks * chunk_bytes(format); }
  constexpr std::int64_t bytes() const { return strips * strip_bytes(); }
};

/// W1 of one expert: gate and up [intermediate, hidden].
constexpr StripShape gemm1_strips(WeightFormat format, std::int64_t hidden,
                                  std::int64_t intermediate) {
  return {format, ceil_div(intermediate, kHalfStripLanes), ceil_div(hidden, kChunkColumns)};
}

/// W2 of one expert: [hidden, intermediate].
constexpr StripShape gemm2_strips(WeightFormat format, std::int64_t hidden,
                                  std::int64_t intermediate) {
  return {format, ceil_div(hidden, kStripLanes), ceil_div(intermediate, kChunkColumns)};
}

}  // namespace megamoe
