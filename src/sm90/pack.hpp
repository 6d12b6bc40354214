// From a caller's matrix to packed tiles: the rules, shared by the packing kernel and the tests.
#pragma once

#include <cstdint>

#include "layout/sm90_weights.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/float_bits.hpp"

namespace megamoe::sm90 {

/// A row-major FP4 matrix with UE8M0 scales per row and 32 columns; zero outside.
struct Fp4Matrix {
  const std::uint8_t* values = nullptr;
  std::int64_t row_stride_bytes = 0;
  const std::uint8_t* scales = nullptr;
  std::int64_t scale_row_stride_bytes = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  constexpr std::uint32_t code(std::int64_t row, std::int64_t column) const {
    if (row >= rows || column >= columns) return 0;
    const std::uint8_t pair = values[row * row_stride_bytes + column / 2];
    return column % 2 == 0 ? e2m1_low(pair) : e2m1_high(pair);
  }
  constexpr std::int32_t scale(std::int64_t row, std::int64_t column) const {
    if (row >= rows || column >= columns) return 0;
    return scales[row * scale_row_stride_bytes + column / kScaleGroup];
  }
};

/// A row-major E4M3 matrix with an f32 scale per 128 x 128; zero outside.
struct Fp8Matrix {
  const std::uint8_t* values = nullptr;
  std::int64_t row_stride_bytes = 0;
  const float* scales = nullptr;
  std::int64_t scale_row_stride = 0;  ///< in scales
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  constexpr std::uint32_t byte(std::int64_t row, std::int64_t column) const {
    return row < rows && column < columns ? values[row * row_stride_bytes + column] : 0u;
  }
  constexpr float scale(std::int64_t row, std::int64_t column) const {
    if (row >= rows || column >= columns) return 1.0f;
    return scales[row / 128 * scale_row_stride + column / 128];
  }
};

/// Two matrices whose rows are interleaved (W1: gate and up), or one (`second.rows` is 0).
template <class Matrix>
struct PackSourceOf {
  Matrix first;
  Matrix second;

  constexpr const Matrix& matrix(std::int64_t packed_row) const {
    return second.rows > 0 && gemm1_source(packed_row).up ? second : first;
  }
  constexpr std::int64_t row(std::int64_t packed_row) const {
    return second.rows > 0 ? gemm1_source(packed_row).row : packed_row;
  }
};

using PackSource = PackSourceOf<Fp4Matrix>;
using Fp8PackSource = PackSourceOf<Fp8Matrix>;

/// Four bytes of an FP8 tile, whose first stands at `cell`; its column is a multiple of 4.
constexpr std::uint32_t pack_fp8_word(const Fp8PackSource& source, std::int64_t packed_row,
                                      std::int64_t first_column, const TileCell& cell) {
  const Fp8Matrix& m = source.matrix(packed_row);
  const std::int64_t row = source.row(packed_row);
  std::uint32_t word = 0;
  for (int b = 0; b < 4; ++b) word |= m.byte(row, first_column + cell.column + b) << (8 * b);
  return word;
}

/// The scale of a packed row in the tile that begins at `first_column`. A tile has 64 intermediates
/// or 128 outputs from a multiple of that on, so its rows of one matrix lie in one block of 128.
constexpr float pack_fp8_scale(const Fp8PackSource& source, std::int64_t packed_row,
                               std::int64_t first_column) {
  return source.matrix(packed_row).scale(source.row(packed_row), first_column);
}

/// The largest scale byte among the row's groups that hold a nonzero value; -1 if there is none.
constexpr std::int32_t largest_scale(const PackSource& source, std::int64_t packed_row) {
  const Fp4Matrix& m = source.matrix(packed_row);
  const std::int64_t row = source.row(packed_row);
  std::int32_t largest = -1;
  for (std::int64_t first = 0; first < m.columns; first += kScaleGroup) {
    bool nonzero = false;
    for (std::int64_t c = first; c < first + kScaleGroup; ++c) {
      nonzero = nonzero || (m.code(row, c) & 7u) != 0;
    }
    const std::int32_t scale = m.scale(row, first);
    if (nonzero && scale > largest) largest = scale;
  }
  return largest;
}

/// What the row's sums are multiplied with at the end; 1 for a row of zeros.
constexpr float row_factor(std::int32_t largest) {
  if (largest < 0) return 1.0f;
  const std::int32_t exponent = largest - kRowFactorBias + 127;
  if (exponent > 0) return f32_from_bits(static_cast<std::uint32_t>(exponent) << 23);
  return f32_from_bits(0x0080'0000u >> (1 - exponent));
}

/// The scale step of a group; below 0 when it is smaller than what a step can say.
constexpr std::int32_t scale_step(std::int32_t scale, std::int32_t largest) {
  return kScaleSteps - 1 + scale - largest;
}

/// An E2M1 code at a step below 0, rounded to step 0.
constexpr std::uint32_t rounded_code(std::uint32_t code, std::int32_t step) {
  if (step >= 0) return code;
  float value = e2m1_to_float(static_cast<std::uint8_t>(code));
  for (std::int32_t s = step; s < 0 && s >= step - 8 && value != 0.0f; ++s) value *= 0.5f;
  return float_to_e2m1(value);
}

/// A word of a packed tile, and how many of its nonzero values had to be rounded.
struct PackedWord {
  std::uint32_t word = 0;
  std::uint32_t rounded = 0;
};

/// The word whose first value stands at `cell` (columns of `cell` count from `first_column`; its
/// column is a multiple of 4 below 16, plus the k step's 32).
constexpr PackedWord pack_word(const PackSource& source, std::int64_t packed_row,
                               std::int64_t first_column, const TileCell& cell,
                               std::int32_t largest) {
  const Fp4Matrix& m = source.matrix(packed_row);
  const std::int64_t row = source.row(packed_row);
  PackedWord result;
  for (int half = 0; half < 2; ++half) {
    for (int b = 0; b < 4; ++b) {
      const TileCell at{cell.row, cell.column + half * 16 + b};
      const std::int64_t column = first_column + at.column;
      const std::uint32_t code = m.code(row, column);
      const std::int32_t step = scale_step(m.scale(row, column), largest);
      const std::uint32_t kept = (code & 7u) == 0 ? code : rounded_code(code, step);
      if ((code & 7u) != 0 && step < 0) ++result.rounded;
      result.word |= (kept & 7u) << magnitude_bit(at);
      result.word |= (kept >> 3 & 1u) << sign_bit(at);
    }
  }
  return result;
}

/// The step byte of a group; groups of zeros and rounded groups have step 0.
constexpr std::uint8_t pack_step(const PackSource& source, std::int64_t packed_row,
                                 std::int64_t column, std::int32_t largest) {
  const Fp4Matrix& m = source.matrix(packed_row);
  const std::int32_t step = scale_step(m.scale(source.row(packed_row), column), largest);
  // Above the last step only where a group of zeros has the larger scale.
  return static_cast<std::uint8_t>(step < 0 ? 0 : step >= kScaleSteps ? kScaleSteps - 1 : step);
}

}  // namespace megamoe::sm90
