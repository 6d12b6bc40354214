// Reading weight matrices in any of their formats, and bringing them into the format of a recipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megamoe/weights.hpp"

namespace megamoe {

/// The value at (row, column), decoded and scaled; exact for bf16 and fp4, the f64 product for fp8.
double value_at(const MatrixView& matrix, std::int64_t row, std::int64_t column);

/// The stored E2M1 code, E4M3 byte or bf16 bits at (row, column).
std::uint16_t code_at(const MatrixView& matrix, std::int64_t row, std::int64_t column);

/// fp4: the UE8M0 byte of the group of 32 that holds (row, column).
std::uint8_t scale_byte_at(const MatrixView& matrix, std::int64_t row, std::int64_t column);
/// fp8: the f32 scale of the 128 x 128 block that holds (row, column).
float scale_at(const MatrixView& matrix, std::int64_t row, std::int64_t column);

/// Throws Error{invalid_argument} naming `what` unless the matrix is [rows, columns], has its
/// memory and strides that hold it.
void check_matrix(const MatrixView& matrix, std::int64_t rows, std::int64_t columns,
                  std::string_view what);

/// Throws Error{format} that names `what`, row and column of the first value or scale that is NaN
/// or infinite.
void check_finite(const MatrixView& matrix, std::string_view what);

/// A matrix in a wanted format: the original where it has that format, else a conversion that this
/// value owns.
class FormattedMatrix {
 public:
  /// bf16 becomes fp4 (UE8M0 per row and 32) or fp8 (f32 per 128 x 128); fp4 and fp8 become bf16
  /// (through f32, rounded to nearest; exact for fp4). fp4 to fp8 and fp8 to fp4 are refused with
  /// Error{unsupported} that names `what` and the recipes that keep it.
  FormattedMatrix(const MatrixView& matrix, WeightFormat format, std::string_view what);

  FormattedMatrix(FormattedMatrix&&) = default;
  FormattedMatrix& operator=(FormattedMatrix&&) = default;

  const MatrixView& view() const { return view_; }

 private:
  void quantise_fp4(const MatrixView& matrix);
  void quantise_fp8(const MatrixView& matrix);
  void round_to_bf16(const MatrixView& matrix);

  MatrixView view_;
  std::vector<std::byte> values_;
  std::vector<std::byte> scales_;
};

}  // namespace megamoe
