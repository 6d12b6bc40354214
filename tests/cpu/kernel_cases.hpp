// Operands of the vector kernels with what they mean, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/kernels.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe::test {

using Random = std::mt19937_64;

inline std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// Of either sign, magnitudes over `binades` binades around 1.
inline float draw_float(Random& random, int binades) {
  const double exponent =
      std::uniform_real_distribution<double>(-binades / 2.0, binades / 2.0)(random);
  const double magnitude = std::exp2(exponent);
  return static_cast<float>(draw(random, 0, 1) == 0 ? magnitude : -magnitude);
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Packed weights, and their values [strip][lane][column] with the scales.
struct PackedCase {
  StripShape shape;
  std::vector<std::byte> bytes;
  std::vector<double> values;

  std::int64_t columns() const { return shape.chunks * kChunkColumns; }
  double value(std::int64_t strip, std::int64_t lane, std::int64_t column) const {
    return values[static_cast<std::size_t>((strip * kStripLanes + lane) * columns() + column)];
  }
  std::byte* chunk(std::int64_t strip, std::int64_t index) {
    return bytes.data() + strip * shape.strip_bytes() + index * chunk_bytes(shape.format);
  }
};

/// A random code of the format, not NaN, and its value.
struct WeightCode {
  std::uint32_t bits;
  double value;
};
inline WeightCode draw_code(Random& random, WeightFormat format) {
  switch (format) {
    case WeightFormat::fp4: {
      const auto nibble = static_cast<std::uint8_t>(draw(random, 0, 15));
      return {nibble, e2m1_to_float(nibble)};
    }
    case WeightFormat::fp8: {
      const auto byte = static_cast<std::uint8_t>(draw(random, 0, 0x7E) | draw(random, 0, 1) << 7);
      return {byte, e4m3_to_float(byte)};
    }
    case WeightFormat::bf16:
      break;
  }
  const BFloat16 value = to_bf16(draw_float(random, 8));
  return {value.bits, to_float(value)};
}

/// Writes a scale of at least eight binades' range, and returns its value.
inline double put_scale(Random& random, WeightFormat format, std::byte* to) {
  if (format == WeightFormat::fp4) {
    const auto byte = static_cast<std::uint8_t>(draw(random, 120, 132));
    *to = std::byte{byte};
    return ue8m0_to_float(byte);
  }
  const float scale = std::fabs(draw_float(random, 12));
  put(to, scale);
  return scale;
}

inline void put_code(std::byte* chunk, WeightFormat format, std::int64_t lane, std::int64_t column,
                     std::uint32_t bits) {
  const std::int64_t step = columns_per_word(format);
  const auto width = static_cast<unsigned>(32 / step);
  const auto shift = static_cast<unsigned>(column % step) * width;
  std::uint32_t word;
  std::memcpy(&word, chunk + word_offset(format, lane, column), sizeof word);
  const std::uint32_t mask = ((1u << width) - 1) << shift;
  put(chunk + word_offset(format, lane, column), (word & ~mask) | (bits << shift));
}

inline PackedCase make_packed(Random& random, WeightFormat format, std::int64_t strips,
                              std::int64_t chunks) {
  PackedCase packed{{format, strips, chunks}, {}, {}};
  packed.bytes.resize(static_cast<std::size_t>(packed.shape.bytes()));
  packed.values.resize(static_cast<std::size_t>(strips * kStripLanes * packed.columns()));
  std::size_t next = 0;
  const std::int64_t scale_columns = format == WeightFormat::fp4 ? 32 : kChunkColumns;
  for (std::int64_t strip = 0; strip < strips; ++strip) {
    for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
      double scale = 1.0;
      for (std::int64_t column = 0; column < packed.columns(); ++column) {
        std::byte* chunk = packed.chunk(strip, column / kChunkColumns);
        const std::int64_t in_chunk = column % kChunkColumns;
        if (format != WeightFormat::bf16 && in_chunk % scale_columns == 0) {
          scale = put_scale(random, format, chunk + scale_offset(format, lane, in_chunk));
        }
        const WeightCode code = draw_code(random, format);
        put_code(chunk, format, lane, in_chunk, code.bits);
        packed.values[next++] = code.value * scale;
      }
    }
  }
  return packed;
}

/// Rows as they stand in an arena, with their f32 values [row][column] (zero beyond the valid
/// columns). What lies between the rows is 0xFF, and the storage ends with the last row's last
/// valid byte.
struct RowsCase {
  PanelFormat format;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  std::int64_t row_stride_bytes;
  std::int64_t scale_row_stride_bytes;
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  std::vector<float> meaning;

  float at(std::int64_t row, std::int64_t column) const {
    return meaning[static_cast<std::size_t>(row * columns + column)];
  }
  PanelSource source() const {
    return {.format = format,
            .values = values.data(),
            .row_stride_bytes = row_stride_bytes,
            .scales = format == PanelFormat::bf16 ? nullptr : scales.data(),
            .scale_row_stride_bytes = scale_row_stride_bytes,
            .rows = rows,
            .first_column = 0,
            .columns = columns,
            .valid_columns = valid_columns};
  }
};

inline std::int64_t scale_bytes_of(PanelFormat format, std::int64_t valid_columns) {
  switch (format) {
    case PanelFormat::bf16:
      return 0;
    case PanelFormat::e4m3_ue8m0_32:
      return ceil_div(valid_columns, 32);
    case PanelFormat::e4m3_f32_128:
      return 4 * ceil_div(valid_columns, 128);
    case PanelFormat::e4m3_ue8m0_128:
      return ceil_div(valid_columns, 128);
  }
  return 0;
}

inline float put_row_scale(Random& random, PanelFormat format, std::byte* scales,
                           std::int64_t column) {
  if (format == PanelFormat::e4m3_f32_128) {
    const float scale = std::fabs(draw_float(random, 12));
    put(scales + column / 128 * 4, scale);
    return scale;
  }
  const auto byte = static_cast<std::uint8_t>(draw(random, 121, 133));
  scales[column / (format == PanelFormat::e4m3_ue8m0_32 ? 32 : 128)] = std::byte{byte};
  return ue8m0_to_float(byte);
}

inline RowsCase make_rows(Random& random, PanelFormat format, std::int64_t rows,
                          std::int64_t valid_columns) {
  const std::int64_t value_bytes = format == PanelFormat::bf16 ? 2 : 1;
  const std::int64_t scale_bytes = scale_bytes_of(format, valid_columns);
  RowsCase made{.format = format,
                .rows = rows,
                .columns = round_up(valid_columns, kChunkColumns),
                .valid_columns = valid_columns,
                .row_stride_bytes = valid_columns * value_bytes + 24,
                .scale_row_stride_bytes = scale_bytes + 8,
                .values = {},
                .scales = {},
                .meaning = {}};
  const auto storage = [&](std::int64_t stride, std::int64_t last) {
    return std::vector<std::byte>(static_cast<std::size_t>((rows - 1) * stride + last),
                                  std::byte{0xFF});
  };
  made.values = storage(made.row_stride_bytes, valid_columns * value_bytes);
  made.scales = storage(made.scale_row_stride_bytes, scale_bytes);
  made.meaning.resize(static_cast<std::size_t>(rows * made.columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    float scale = 1.0f;
    std::byte* values = made.values.data() + row * made.row_stride_bytes;
    std::byte* scales = made.scales.data() + row * made.scale_row_stride_bytes;
    float* meaning = made.meaning.data() + row * made.columns;
    for (std::int64_t c = 0; c < valid_columns; ++c) {
      if (format == PanelFormat::bf16) {
        const BFloat16 value = to_bf16(draw_float(random, 8));
        put(values + 2 * c, value);
        meaning[c] = to_float(value);
        continue;
      }
      const std::int64_t step = format == PanelFormat::e4m3_ue8m0_32 ? 32 : 128;
      if (c % step == 0) scale = put_row_scale(random, format, scales, c);
      const WeightCode code = draw_code(random, WeightFormat::fp8);
      values[c] = std::byte{static_cast<std::uint8_t>(code.bits)};
      meaning[c] = static_cast<float>(code.value) * scale;
    }
  }
  return made;
}

/// Same bits, or NaN both: which NaN comes of an operation on two is not specified.
inline bool same_value(float a, float b) {
  return f32_bits(a) == f32_bits(b) || (is_nan(a) && is_nan(b));
}

/// The sums [strip][row][lane] of all columns, `step` chunks a call. The padding is checked to stay
/// as it was.
inline std::vector<float> accumulate_rows(const VectorKernels& kernels, const RowsCase& rows,
                                          const PackedCase& packed, std::int64_t step) {
  const std::int64_t padded = kernels.padded_rows(rows.rows);
  std::vector<float> sums(static_cast<std::size_t>(packed.shape.strips * padded * kStripLanes));
  std::vector<float> panel;
  for (std::int64_t chunk = 0; chunk < packed.shape.chunks; chunk += step) {
    const std::int64_t chunks = min64(step, packed.shape.chunks - chunk);
    PanelSource source = rows.source();
    source.first_column = chunk * kChunkColumns;
    source.columns = chunks * kChunkColumns;
    panel.assign(static_cast<std::size_t>(padded * source.columns),
                 std::numeric_limits<float>::quiet_NaN());
    kernels.load_panel(source, panel.data());
    kernels.accumulate({.format = packed.shape.format,
                        .weights = packed.bytes.data() + chunk * chunk_bytes(packed.shape.format),
                        .strip_stride_bytes = packed.shape.strip_bytes(),
                        .strips = packed.shape.strips,
                        .chunks = chunks,
                        .panel = panel.data(),
                        .rows = rows.rows,
                        .sums = sums.data()});
  }
  std::vector<float> dense;
  for (std::int64_t strip = 0; strip < packed.shape.strips; ++strip) {
    const auto begin = sums.begin() + strip * padded * kStripLanes;
    dense.insert(dense.end(), begin, begin + rows.rows * kStripLanes);
  }
  return dense;
}

}  // namespace megamoe::test
