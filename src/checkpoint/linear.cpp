#include "checkpoint/linear.hpp"

#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"

namespace megamoe {
namespace {

/// The linear layer being read.
struct Linear {
  const TensorSet& tensors;
  const std::string& base;
  std::int64_t rows;
  std::int64_t columns;

  std::string name(const char* suffix) const { return base + suffix; }
  bool has(const char* suffix) const { return tensors.has(name(suffix)); }

  /// The tensor with this suffix, of this type and shape. An absent one is an error: a scale is
  /// never guessed.
  std::span<const std::byte> bytes(const char* suffix, Dtype dtype,
                                   const std::vector<std::int64_t>& shape) const {
    const TensorView& tensor = tensors.tensor(name(suffix), shape);
    if (tensor.dtype != dtype) {
      fail(ErrorCode::format, "tensor {} is {}: {} is wanted", name(suffix),
           megamoe::name_of(tensor.dtype), megamoe::name_of(dtype));
    }
    return tensor.bytes;
  }

  Dtype dtype(const char* suffix, std::int64_t row_columns) const {
    return tensors.tensor(name(suffix), {rows, row_columns}).dtype;
  }

  void require_groups(std::int64_t size) const {
    if (columns % size != 0) {
      fail(ErrorCode::format, "{} has {} columns: a multiple of {} is wanted, one scale for each",
           base, columns, size);
    }
  }
};

MatrixView fp4_view(const Linear& linear, std::span<const std::byte> values,
                    std::span<const std::byte> scales) {
  return {WeightFormat::fp4,  linear.rows,   linear.columns,     values.data(),
          linear.columns / 2, scales.data(), linear.columns / 32};
}

MatrixView read_fp8(const Linear& linear) {
  const std::int64_t block_columns = ceil_div(linear.columns, 128);
  const auto values = linear.bytes(".weight", Dtype::f8_e4m3, {linear.rows, linear.columns});
  const auto scales =
      linear.bytes(".weight_scale_inv", Dtype::f32, {ceil_div(linear.rows, 128), block_columns});
  return {WeightFormat::fp8, linear.rows,   linear.columns,   values.data(),
          linear.columns,    scales.data(), 4 * block_columns};
}

/// NVFP4: value = E2M1 * E4M3 scale of its 16 columns * one f32 factor. No recipe keeps it, so it
/// becomes bf16.
MatrixView convert_nvfp4(const Linear& linear, std::span<const std::byte> values, double factor,
                         ConvertedWeights& converted) {
  linear.require_groups(16);
  const auto scales =
      linear.bytes(".weight_scale", Dtype::f8_e4m3, {linear.rows, linear.columns / 16});
  if (!std::isfinite(factor))
    fail(ErrorCode::format, "the second scale of {} is not a finite number", linear.base);
  converted.push_back(std::make_unique<std::vector<std::byte>>(
      static_cast<std::size_t>(2 * linear.rows * linear.columns)));
  std::byte* out = converted.back()->data();
  for (std::int64_t i = 0; i < linear.rows * linear.columns; ++i) {
    const auto pair = std::to_integer<std::uint8_t>(values[static_cast<std::size_t>(i / 2)]);
    const float value = e2m1_to_float(i % 2 == 0 ? e2m1_low(pair) : e2m1_high(pair));
    const float scale =
        e4m3_to_float(std::to_integer<std::uint8_t>(scales[static_cast<std::size_t>(i / 16)]));
    const BFloat16 rounded = to_bf16(static_cast<float>(double{value} * scale * factor));
    std::memcpy(out + 2 * i, &rounded, sizeof rounded);
  }
  return {WeightFormat::bf16, linear.rows, linear.columns, out, 2 * linear.columns, nullptr, 0};
}

double scalar(const Linear& linear, const char* suffix) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, std::vector<std::int64_t>{1}}) {
    const TensorView* tensor = nullptr;
    try {
      tensor = &linear.tensors.tensor(linear.name(suffix), shape);
    } catch (const Error&) {
      if (shape.empty()) continue;  // both spellings of one number occur
      throw;
    }
    if (tensor->dtype != Dtype::f32) break;
    float value;
    std::memcpy(&value, tensor->bytes.data(), sizeof value);
    return value;
  }
  fail(ErrorCode::format, "tensor {} is no F32 number", linear.name(suffix));
}

MatrixView read_packed(const Linear& linear, ConvertedWeights& converted) {
  const auto values = linear.bytes(".weight_packed", Dtype::u8, {linear.rows, linear.columns / 2});
  if (linear.has(".weight_global_scale")) {
    return convert_nvfp4(linear, values, 1.0 / scalar(linear, ".weight_global_scale"), converted);
  }
  linear.require_groups(32);
  return fp4_view(linear, values,
                  linear.bytes(".weight_scale", Dtype::u8, {linear.rows, linear.columns / 32}));
}

}  // namespace

MatrixView read_linear(const TensorSet& tensors, const std::string& base, std::int64_t rows,
                       std::int64_t columns, ConvertedWeights& converted) {
  const Linear linear{tensors, base, rows, columns};
  if (linear.has(".weight_packed")) return read_packed(linear, converted);
  if (linear.has(".weight_scale_2")) {
    const auto values = linear.bytes(".weight", Dtype::u8, {rows, columns / 2});
    return convert_nvfp4(linear, values, scalar(linear, ".weight_scale_2"), converted);
  }
  if (linear.has(".scale")) {
    linear.require_groups(32);
    const auto values = linear.bytes(".weight", Dtype::i8, {rows, columns / 2});
    return fp4_view(linear, values, linear.bytes(".scale", Dtype::f8_e8m0, {rows, columns / 32}));
  }
  switch (linear.dtype(".weight", columns)) {
    case Dtype::f8_e4m3:
      return read_fp8(linear);
    case Dtype::bf16:
      return {WeightFormat::bf16,
              rows,
              columns,
              linear.bytes(".weight", Dtype::bf16, {rows, columns}).data(),
              2 * columns,
              nullptr,
              0};
    default:
      fail(ErrorCode::format, "tensor {} is {}: BF16, or F8_E4M3 with scales, is wanted",
           linear.name(".weight"), megamoe::name_of(linear.dtype(".weight", columns)));
  }
}

}  // namespace megamoe
