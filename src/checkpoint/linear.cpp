#include "checkpoint/linear.hpp"

#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

/// The linear layer being read.
struct Linear {
  const TensorSet& tensors;
  const std::string& base;
  std::int64_t rows;
  std::int64_t columns;

  std::string name(const char* suffix) const { return base + suffix; }

  /// The tensor with this suffix, one element for `columns_each` columns of a row.
  std::span<const std::byte> bytes(const char* suffix, Dtype dtype,
                                   std::int64_t columns_each) const {
    if (columns % columns_each != 0) {
      fail(ErrorCode::format, "{} has {} columns: a multiple of {} is wanted, for {}", base,
           columns, columns_each, name(suffix));
    }
    return tensors.bytes(name(suffix), dtype, {rows, columns / columns_each});
  }
};

MatrixView bf16_view(const Linear& linear, const std::byte* values) {
  return {WeightFormat::bf16, linear.rows, linear.columns, values, 2 * linear.columns, nullptr, 0};
}

MatrixView fp4_view(const Linear& linear, std::span<const std::byte> values,
                    std::span<const std::byte> scales) {
  return {WeightFormat::fp4,  linear.rows,   linear.columns,     values.data(),
          linear.columns / 2, scales.data(), linear.columns / 32};
}

/// Scales of 128 x 128 blocks as f32: as stored, or widened exactly.
const std::byte* block_scales(const Linear& linear, std::int64_t block_columns,
                              ConvertedWeights& converted) {
  const std::vector<std::int64_t> shape{ceil_div(linear.rows, 128), block_columns};
  std::vector<float> wide;
  if (linear.tensors.has(linear.name(".scale"))) {
    for (std::byte exponent : linear.tensors.bytes(linear.name(".scale"), Dtype::f8_e8m0, shape)) {
      wide.push_back(ue8m0_to_float(std::to_integer<std::uint8_t>(exponent)));
    }
  } else {
    const std::string name = linear.name(".weight_scale_inv");
    if (linear.tensors.tensor(name).dtype != Dtype::bf16)
      return linear.tensors.bytes(name, Dtype::f32, shape).data();
    wide = linear.tensors.floats(name, shape);
  }
  const auto bytes = std::as_bytes(std::span(wide));
  return converted.memory.emplace_back(bytes.begin(), bytes.end()).data();
}

MatrixView read_fp8(const Linear& linear, ConvertedWeights& converted) {
  const auto values = linear.bytes(".weight", Dtype::f8_e4m3, 1);
  const std::int64_t block_columns = ceil_div(linear.columns, 128);
  return {WeightFormat::fp8, linear.rows,    linear.columns,
          values.data(),     linear.columns, block_scales(linear, block_columns, converted),
          4 * block_columns};
}

/// NVFP4: value = E2M1 * E4M3 scale of its 16 columns * one f32 factor. No recipe keeps it, so it
/// becomes bf16.
MatrixView convert_nvfp4(const Linear& linear, const char* suffix, double factor,
                         ConvertedWeights& converted) {
  const auto values = linear.bytes(suffix, Dtype::u8, 2);
  const auto scales = linear.bytes(".weight_scale", Dtype::f8_e4m3, 16);
  if (!(std::isfinite(factor) && factor > 0))
    fail(ErrorCode::format, "the second scale of {} is {}: a finite number above 0 is wanted",
         linear.base, factor);
  converted.dequantised = true;
  std::byte* out =
      converted.memory.emplace_back(static_cast<std::size_t>(2 * linear.rows * linear.columns))
          .data();
  for (std::int64_t i = 0; i < linear.rows * linear.columns; ++i) {
    const auto pair = std::to_integer<std::uint8_t>(values[static_cast<std::size_t>(i / 2)]);
    const float value = e2m1_to_float(i % 2 == 0 ? e2m1_low(pair) : e2m1_high(pair));
    const float scale =
        e4m3_to_float(std::to_integer<std::uint8_t>(scales[static_cast<std::size_t>(i / 16)]));
    const BFloat16 rounded = to_bf16(static_cast<float>(double{value} * scale * factor));
    std::memcpy(out + 2 * i, &rounded, sizeof rounded);
  }
  return bf16_view(linear, out);
}

MatrixView read_packed(const Linear& linear, ConvertedWeights& converted) {
  if (linear.tensors.tensor(linear.name(".weight_scale")).dtype == Dtype::f8_e4m3) {
    if (!linear.tensors.has(linear.name(".weight_global_scale"))) {
      fail(ErrorCode::format, "{}.weight_scale is F8_E4M3 as in NVFP4, but {} is missing",
           linear.base, linear.name(".weight_global_scale"));
    }
    const double divisor = linear.tensors.number(linear.name(".weight_global_scale"));
    return convert_nvfp4(linear, ".weight_packed", 1.0 / divisor, converted);
  }
  return fp4_view(linear, linear.bytes(".weight_packed", Dtype::u8, 2),
                  linear.bytes(".weight_scale", Dtype::u8, 32));
}

}  // namespace

MatrixView read_linear(const TensorSet& tensors, const std::string& base, std::int64_t rows,
                       std::int64_t columns, ConvertedWeights& converted) {
  const Linear linear{tensors, base, rows, columns};
  if (tensors.has(base + ".weight_packed")) return read_packed(linear, converted);
  const Dtype dtype = tensors.tensor(base + ".weight").dtype;
  switch (dtype) {
    case Dtype::bf16:
      return bf16_view(linear, linear.bytes(".weight", Dtype::bf16, 1).data());
    case Dtype::f8_e4m3:
      return read_fp8(linear, converted);
    case Dtype::i8:
      return fp4_view(linear, linear.bytes(".weight", Dtype::i8, 2),
                      linear.bytes(".scale", Dtype::f8_e8m0, 32));
    case Dtype::u8:
      return convert_nvfp4(linear, ".weight", tensors.number(base + ".weight_scale_2"), converted);
    case Dtype::f16:
    case Dtype::f32:
      fail(ErrorCode::unsupported, "tensor {}.weight is {}: no recipe keeps that, BF16 is wanted",
           base, name_of(dtype));
    default:
      fail(ErrorCode::format,
           "tensor {}.weight is {}: BF16, F8_E4M3, or packed pairs in I8 or U8 are wanted", base,
           name_of(dtype));
  }
}

}  // namespace megamoe
