// Weights in the order in which the threads of a warpgroup take them into registers.
//
// FP4: a tile is 128 output rows times 128 columns in one piece of 8704 bytes: two slabs of 64 rows
// (what one warpgroup multiplies), 4096 bytes each, then the scales of both, 256 bytes each. Thread
// t of a warpgroup holds rows 16 (t / 32) + (t % 32) / 4 and that + 8, and the columns 4 (t % 4) to
// + 3 of every sixteen. Its eight words of a slab are two 16-byte loads; word 2 k + h covers k step
// k (32 columns) of its row half h, eight values each.
//
// FP8: 16384 bytes, a slab 8192, and two f32 scales: of the tile's rows 0 to 7 of every sixteen and
// of the others (W1: gate and up; W2: twice the same), then eight bytes of nothing. Word r of a
// thread's k step covers its row half r % 2 and, from r = 2 on, the columns sixteen further.
//
// The tiles of an expert lie row tile by row tile, inside by columns. W1: a row tile is 64
// intermediates, gate and up rows interleaved in eights, so that a thread's two rows are the gate
// and the up of one intermediate. W2: 128 neighbouring rows.
#pragma once

#include <cstdint>

#include "base/integers.hpp"
#include "layout/shape.hpp"

namespace megamoe::sm90 {

inline constexpr int kTileRows = 128;
inline constexpr int kTileColumns = 128;
inline constexpr int kSlabRows = 64;
inline constexpr int kSlabBytes = 4096;
inline constexpr int kSlabScaleBytes = 256;
inline constexpr int kWeightTileBytes = 2 * (kSlabBytes + kSlabScaleBytes);
inline constexpr int kFp8SlabBytes = 8192;
inline constexpr int kFp8TileBytes = 2 * kFp8SlabBytes + 16;
inline constexpr int kScaleGroup = 32;
/// A row's scales are 2^(step - 11) relative to its largest: E4M3 holds every E2M1 value exactly at
/// the steps 0 to 11.
inline constexpr int kScaleSteps = 12;
/// The row's factor is 2^(largest scale byte - kRowFactorBias): at step 11 the decoded E4M3 value
/// is the E2M1 value times 2^6.
inline constexpr int kRowFactorBias = 127 + 6;

/// Where a value stands inside its tile.
struct TileCell {
  int row;     ///< 0 to 127
  int column;  ///< 0 to 127
};

constexpr int thread_of(const TileCell& cell) {
  const int row = cell.row % kSlabRows;
  return row / 16 * 32 + row % 8 * 4 + cell.column % 16 / 4;
}

/// Offset in the tile of the 32-bit word that holds the cell.
constexpr int word_offset(const TileCell& cell) {
  const int word = cell.column / 32 * 2 + cell.row % 16 / 8;
  return cell.row / kSlabRows * kSlabBytes + word / 4 * 2048 + thread_of(cell) * 16 + word % 4 * 4;
}

/// FP8: offset in the tile of the cell's byte.
constexpr int fp8_offset(const TileCell& cell) {
  const int word = cell.row % 16 / 8 + cell.column % 32 / 16 * 2;
  return cell.row / kSlabRows * kFp8SlabBytes + cell.column / 32 * 2048 + thread_of(cell) * 16 +
         word * 4 + cell.column % 4;
}
/// FP8: offset in the tile of the scale of the cell's row.
constexpr int fp8_scale_offset(const TileCell& cell) {
  return 2 * kFp8SlabBytes + cell.row % 16 / 8 * 4;
}

/// Bit in the word where the magnitude (3 bits) begins: nibble n of the word selects byte n % 4 of
/// register n / 4 of the fragment.
constexpr int magnitude_bit(const TileCell& cell) {
  return (cell.column % 32 / 16 * 4 + cell.column % 4) * 4;
}
/// Bit of the sign: the top bit of byte column % 4, for the second register the top bit of that
/// byte's low nibble, so that one logic operation moves four signs.
constexpr int sign_bit(const TileCell& cell) {
  return cell.column % 4 * 8 + (cell.column % 32 < 16 ? 7 : 3);
}

/// Offset in the tile of the scale step of the cell's row and group of 32 columns.
constexpr int scale_offset(const TileCell& cell) {
  const int row = cell.row % kSlabRows;
  return 2 * kSlabBytes + cell.row / kSlabRows * kSlabScaleBytes + (row / 16 * 8 + row % 8) * 8 +
         row % 16 / 8 * 4 + cell.column / kScaleGroup;
}

/// A row of W1 or W2 as the caller has it.
struct SourceRow {
  bool up;  ///< W1: from the up matrix, else from the gate matrix
  std::int64_t row;
};

/// Packed row p of W1: 256 rows for each group of 128 intermediates.
constexpr SourceRow gemm1_source(std::int64_t packed_row) {
  const std::int64_t in_group = packed_row % 256;
  return {in_group % 16 >= 8, packed_row / 256 * 128 + in_group / 16 * 8 + in_group % 8};
}

/// Sizes of one expert's packed matrices. Rows and columns beyond the matrix are zero.
struct PackedMatrix {
  std::int64_t rows;     ///< a multiple of 256: both kernel shapes tile it
  std::int64_t columns;  ///< a multiple of 128
  std::int64_t tile_bytes;

  constexpr std::int64_t row_tiles() const { return rows / kTileRows; }
  constexpr std::int64_t column_tiles() const { return columns / kTileColumns; }
  constexpr std::int64_t bytes() const { return row_tiles() * column_tiles() * tile_bytes; }
  constexpr std::int64_t tile_offset(std::int64_t row_tile, std::int64_t column_tile) const {
    return (row_tile * column_tiles() + column_tile) * tile_bytes;
  }
};

constexpr int weight_tile_bytes(WeightFormat format) {
  return format == WeightFormat::fp8 ? kFp8TileBytes : kWeightTileBytes;
}

constexpr PackedMatrix packed_gemm1(const LayerShape& shape) {
  return {shape.intermediate_groups() * 256, round_up(shape.hidden, kTileColumns),
          weight_tile_bytes(weight_format(shape.recipe))};
}
constexpr PackedMatrix packed_gemm2(const LayerShape& shape) {
  return {round_up(shape.hidden, 256), shape.intermediate_groups() * kIntermediateGroup,
          weight_tile_bytes(weight_format(shape.recipe))};
}

}  // namespace megamoe::sm90
