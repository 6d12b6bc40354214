#include "layout/weight_matrix.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "base/names.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

constexpr std::int64_t kFp4Group = 32;
constexpr std::int64_t kFp8Block = 128;

std::int64_t row_bytes(WeightFormat format, std::int64_t columns) {
  switch (format) {
    case WeightFormat::bf16:
      return columns * 2;
    case WeightFormat::fp4:
      return ceil_div(columns, 2);
    case WeightFormat::fp8:
      return columns;
  }
  return 0;
}

std::int64_t scale_row_bytes(WeightFormat format, std::int64_t columns) {
  switch (format) {
    case WeightFormat::bf16:
      return 0;
    case WeightFormat::fp4:
      return ceil_div(columns, kFp4Group);
    case WeightFormat::fp8:
      return ceil_div(columns, kFp8Block) * 4;
  }
  return 0;
}

const std::byte* row_of(const MatrixView& matrix, std::int64_t row) {
  return matrix.values + row * matrix.row_stride_bytes;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::uint16_t code_at(const MatrixView& matrix, std::int64_t row, std::int64_t column) {
  const std::byte* values = row_of(matrix, row);
  switch (matrix.format) {
    case WeightFormat::bf16:
      return load<std::uint16_t>(values + 2 * column);
    case WeightFormat::fp8:
      return load<std::uint8_t>(values + column);
    case WeightFormat::fp4: {
      const std::uint8_t pair = load<std::uint8_t>(values + column / 2);
      return column % 2 == 0 ? pair & 0xf : pair >> 4;
    }
  }
  return 0;
}

std::uint8_t scale_byte_at(const MatrixView& matrix, std::int64_t row, std::int64_t column) {
  return load<std::uint8_t>(matrix.scales + row * matrix.scale_row_stride_bytes +
                            column / kFp4Group);
}

float scale_at(const MatrixView& matrix, std::int64_t row, std::int64_t column) {
  return load<float>(matrix.scales + row / kFp8Block * matrix.scale_row_stride_bytes +
                     column / kFp8Block * 4);
}

double value_at(const MatrixView& matrix, std::int64_t row, std::int64_t column) {
  const std::uint16_t code = code_at(matrix, row, column);
  switch (matrix.format) {
    case WeightFormat::bf16:
      return to_float(BFloat16{code});
    case WeightFormat::fp4:
      return double{e2m1_to_float(static_cast<std::uint8_t>(code))} *
             ue8m0_to_float(scale_byte_at(matrix, row, column));
    case WeightFormat::fp8:
      return double{e4m3_to_float(static_cast<std::uint8_t>(code))} * scale_at(matrix, row, column);
  }
  return 0;
}

void check_matrix(const MatrixView& matrix, std::int64_t rows, std::int64_t columns,
                  std::string_view what) {
  check_argument(matrix.rows == rows && matrix.columns == columns,
                 "{} is [{}, {}]: [{}, {}] is wanted", what, matrix.rows, matrix.columns, rows,
                 columns);
  check_argument(matrix.values != nullptr, "{} has no memory", what);
  check_argument(matrix.row_stride_bytes >= row_bytes(matrix.format, columns),
                 "{} has rows {} bytes apart: {} columns of {} need {}", what,
                 matrix.row_stride_bytes, columns, name_of(matrix.format),
                 row_bytes(matrix.format, columns));
  if (matrix.format == WeightFormat::bf16) return;
  check_argument(matrix.scales != nullptr, "{} is {} but has no scales", what,
                 name_of(matrix.format));
  check_argument(matrix.scale_row_stride_bytes >= scale_row_bytes(matrix.format, columns),
                 "{} has rows of scales {} bytes apart: {} columns of {} need {}", what,
                 matrix.scale_row_stride_bytes, columns, name_of(matrix.format),
                 scale_row_bytes(matrix.format, columns));
}

void check_finite(const MatrixView& matrix, std::string_view what) {
  const auto refuse = [&](const char* part, std::int64_t row, std::int64_t column) {
    fail(ErrorCode::format, "{} has a {} that is not finite at row {}, column {}", what, part, row,
         column);
  };
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    if (matrix.format == WeightFormat::fp4) {
      for (std::int64_t column = 0; column < matrix.columns; column += kFp4Group) {
        if (scale_byte_at(matrix, row, column) == 255) refuse("scale", row, column);
      }
      continue;
    }
    if (matrix.format == WeightFormat::fp8 && row % kFp8Block == 0) {
      for (std::int64_t column = 0; column < matrix.columns; column += kFp8Block) {
        if (!std::isfinite(scale_at(matrix, row, column))) refuse("scale", row, column);
      }
    }
    const std::byte* values = row_of(matrix, row);
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      const bool bad = matrix.format == WeightFormat::fp8
                           ? (load<std::uint8_t>(values + column) & 0x7f) == 0x7f
                           : (load<std::uint16_t>(values + 2 * column) & 0x7f80) == 0x7f80;
      if (bad) refuse("value", row, column);
    }
  }
}

FormattedMatrix::FormattedMatrix(const MatrixView& matrix, WeightFormat format,
                                 std::string_view what)
    : view_(matrix) {
  if (matrix.format == format) return;
  if (matrix.format != WeightFormat::bf16 && format != WeightFormat::bf16) {
    fail(ErrorCode::unsupported,
         "{} is {} and the layer wants {}: use a recipe, or shared_weights for shared experts, of "
         "{}, "
         "or bf16",
         what, name_of(matrix.format), name_of(format), name_of(matrix.format));
  }
  view_.format = format;
  view_.row_stride_bytes = row_bytes(format, matrix.columns);
  values_.resize(static_cast<std::size_t>(matrix.rows * view_.row_stride_bytes));
  view_.values = values_.data();
  view_.scale_row_stride_bytes = scale_row_bytes(format, matrix.columns);
  const std::int64_t scale_rows =
      format == WeightFormat::fp8 ? ceil_div(matrix.rows, kFp8Block) : matrix.rows;
  scales_.resize(static_cast<std::size_t>(scale_rows * view_.scale_row_stride_bytes));
  view_.scales = scales_.empty() ? nullptr : scales_.data();
  switch (format) {
    case WeightFormat::fp4:
      quantise_fp4(matrix);
      break;
    case WeightFormat::fp8:
      quantise_fp8(matrix);
      break;
    case WeightFormat::bf16:
      round_to_bf16(matrix);
      break;
  }
}

void FormattedMatrix::quantise_fp4(const MatrixView& matrix) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t first = 0; first < matrix.columns; first += kFp4Group) {
      const std::int64_t count = min64(kFp4Group, matrix.columns - first);
      std::array<float, kFp4Group> group{};
      for (std::int64_t c = 0; c < count; ++c) {
        group[static_cast<std::size_t>(c)] = static_cast<float>(value_at(matrix, row, first + c));
      }
      std::array<std::uint8_t, kFp4Group / 2> nibbles{};
      std::uint8_t scale = 0;
      quantise_e2m1_group(group.data(), count, nibbles.data(), scale);
      std::memcpy(values_.data() + row * view_.row_stride_bytes + first / 2, nibbles.data(),
                  static_cast<std::size_t>(ceil_div(count, 2)));
      scales_[static_cast<std::size_t>(row * view_.scale_row_stride_bytes + first / kFp4Group)] =
          std::byte{scale};
    }
  }
}

void FormattedMatrix::quantise_fp8(const MatrixView& matrix) {
  for (std::int64_t top = 0; top < matrix.rows; top += kFp8Block) {
    for (std::int64_t left = 0; left < matrix.columns; left += kFp8Block) {
      const std::int64_t bottom = min64(top + kFp8Block, matrix.rows);
      const std::int64_t right = min64(left + kFp8Block, matrix.columns);
      float amax = 0;
      for (std::int64_t r = top; r < bottom; ++r) {
        for (std::int64_t c = left; c < right; ++c) {
          amax = std::fmax(amax, std::fabs(static_cast<float>(value_at(matrix, r, c))));
        }
      }
      const float scale = e4m3_f32_scale(amax);
      for (std::int64_t r = top; r < bottom; ++r) {
        for (std::int64_t c = left; c < right; ++c) {
          values_[static_cast<std::size_t>(r * view_.row_stride_bytes + c)] =
              std::byte{float_to_e4m3(static_cast<float>(value_at(matrix, r, c)) * (1.0f / scale))};
        }
      }
      std::memcpy(
          scales_.data() + top / kFp8Block * view_.scale_row_stride_bytes + left / kFp8Block * 4,
          &scale, sizeof scale);
    }
  }
}

void FormattedMatrix::round_to_bf16(const MatrixView& matrix) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      const BFloat16 value = to_bf16(static_cast<float>(value_at(matrix, row, column)));
      std::memcpy(values_.data() + row * view_.row_stride_bytes + 2 * column, &value, sizeof value);
    }
  }
}

}  // namespace megamoe
