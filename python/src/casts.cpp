// Conversions between formats: the library's own roundings on whole arrays.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <nanobind/stl/string_view.h>

#include "megamoe/layer.hpp"

#include "base/check.hpp"
#include "base/integers.hpp"
#include "base/names.hpp"
#include "layout/shape.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/f16.hpp"
#include "plan/plan.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

/// Rows of bf16, f16 or f32 as f32.
class FloatRows {
 public:
  explicit FloatRows(nb::handle object) : array_(object, "x") {
    array_.want_ndim({2});
    array_.want_place(kHost);
    array_.want_contiguous();
    check_argument(
        array_.holds(Element::f32) || array_.holds(Element::f16) || array_.holds(Element::bf16),
        "x has elements of another type: float32, float16 or bfloat16 is wanted");
  }
  std::int64_t rows() const { return array_.size(0); }
  std::int64_t columns() const { return array_.size(1); }

  void read(std::int64_t row, std::int64_t first, std::int64_t count, float* out) const {
    const std::int64_t at = row * columns() + first;
    for (std::int64_t i = 0; i < count; ++i) out[i] = value(at + i);
  }

 private:
  float value(std::int64_t at) const {
    if (array_.holds(Element::f32)) return array_.as<float>()[at];
    if (array_.holds(Element::f16)) return f16_to_float(array_.as<std::uint16_t>()[at]);
    return to_float(array_.as<BFloat16>()[at]);
  }
  ArrayIn array_;
};

/// One group to E2M1 with an f32 scale: scale = amax / 6, and 1 for 0.
void quantise_e2m1_group_f32(const float* values, std::int64_t count, std::uint8_t* nibbles,
                             float& scale) {
  const std::uint32_t largest = group_magnitude_bits(values, count);
  check_argument(largest < kF32InfinityBits, "x has a NaN or an infinity, which E2M1 has not");
  scale = largest == 0 ? 1.0f : std::max(f32_from_bits(largest) / kE2m1Max, 0x1p-126f);
  const float reciprocal = 1.0f / scale;
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint8_t high = i + 1 < count ? float_to_e2m1(values[i + 1] * reciprocal) : 0;
    nibbles[i / 2] = e2m1_pack(float_to_e2m1(values[i] * reciprocal), high);
  }
}

/// One group, its bytes, and its scale as f32 (or the UE8M0 byte's value).
using Quantise = void (*)(const float* values, std::int64_t count, std::uint8_t* bytes,
                          float& scale);

void e4m3_ue8m0(const float* values, std::int64_t count, std::uint8_t* bytes, float& scale) {
  std::uint8_t byte = 0;
  quantise_e4m3_group(values, count, bytes, byte);
  scale = ue8m0_to_float(byte);
}

void e2m1_ue8m0(const float* values, std::int64_t count, std::uint8_t* bytes, float& scale) {
  std::uint8_t byte = 0;
  quantise_e2m1_group(values, count, bytes, byte);
  check_argument(byte != kUe8m0NaN, "x has a NaN or an infinity, which E2M1 has not");
  scale = ue8m0_to_float(byte);
}

Quantise quantiser(std::string_view format, bool power_of_two) {
  if (format == "fp8") return power_of_two ? e4m3_ue8m0 : quantise_e4m3_group_f32;
  check_argument(format == "fp4", "format '{}': fp8 or fp4 is wanted", format);
  return power_of_two ? e2m1_ue8m0 : quantise_e2m1_group_f32;
}

/// values: [rows, columns] of fp8, or [rows, columns / 2] of fp4; scales: [rows, groups].
void cast_rows(nb::handle x, std::string_view format, std::int64_t group, bool power_of_two,
               nb::handle values, nb::handle scales) {
  const FloatRows rows(x);
  const std::int64_t per_byte = format == "fp4" ? 2 : 1;
  check_argument(group >= 1 && group % per_byte == 0,
                 "gran_k is {}: a positive, even number is wanted", group);
  check_argument(rows.columns() % per_byte == 0,
                 "x has {} columns: an even number is wanted for fp4", rows.columns());
  const Quantise quantise = quantiser(format, power_of_two);
  const std::int64_t row_bytes = rows.columns() / per_byte;
  const std::int64_t groups = ceil_div(rows.columns(), group);
  const ArrayOut bytes_out(values, "values", Element::byte, {rows.rows(), row_bytes});
  const ArrayOut scales_out(scales, "scales", Element::f32, {rows.rows(), groups});
  auto* bytes = reinterpret_cast<std::uint8_t*>(bytes_out.bytes());
  float* scale = scales_out.span<float>().data();
  std::vector<float> floats(static_cast<std::size_t>(group));
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = g * group;
      const std::int64_t count = min64(group, rows.columns() - first);
      rows.read(row, first, count, floats.data());
      quantise(floats.data(), count, bytes + row * row_bytes + first / per_byte,
               scale[row * groups + g]);
    }
  }
}

/// One scale per `group` rows and `group` columns.
void cast_blocks_to_fp8(nb::handle x, std::int64_t group, bool power_of_two, nb::handle values,
                        nb::handle scales) {
  const FloatRows rows(x);
  check_argument(group >= 1, "gran_k is {}: a positive number is wanted", group);
  const std::int64_t down = ceil_div(rows.rows(), group);
  const std::int64_t across = ceil_div(rows.columns(), group);
  const ArrayOut bytes_out(values, "values", Element::byte, {rows.rows(), rows.columns()});
  const ArrayOut scales_out(scales, "scales", Element::f32, {down, across});
  auto* bytes = reinterpret_cast<std::uint8_t*>(bytes_out.bytes());
  const Quantise quantise = quantiser("fp8", power_of_two);
  std::vector<float> floats(static_cast<std::size_t>(group * group));
  std::vector<std::uint8_t> block(floats.size());
  for (std::int64_t r = 0; r < rows.rows(); r += group) {
    for (std::int64_t c = 0; c < rows.columns(); c += group) {
      const std::int64_t height = min64(group, rows.rows() - r);
      const std::int64_t width = min64(group, rows.columns() - c);
      for (std::int64_t i = 0; i < height; ++i) {
        rows.read(r + i, c, width, floats.data() + i * width);
      }
      quantise(floats.data(), height * width, block.data(),
               scales_out.span<float>()[static_cast<std::size_t>(r / group * across + c / group)]);
      for (std::int64_t i = 0; i < height; ++i) {
        std::copy_n(block.data() + i * width, width, bytes + (r + i) * rows.columns() + c);
      }
    }
  }
}

void round_to_bf16(nb::handle x, nb::handle out) {
  const ArrayIn from(x, "x");
  from.want_place(kHost);
  from.want_contiguous();
  from.want(Element::f32, {-1});
  const ArrayOut to(out, "out", Element::bf16, {from.values()});
  std::ranges::transform(from.span<float>(), to.span<BFloat16>().begin(),
                         [](float value) { return to_bf16(value); });
}

}  // namespace

void bind_casts(nb::module_& module) {
  module.def("cast_rows", &cast_rows, "x"_a, "format"_a, "group"_a, "power_of_two"_a, "values"_a,
             "scales"_a);
  module.def("cast_blocks_to_fp8", &cast_blocks_to_fp8, "x"_a, "group"_a, "power_of_two"_a,
             "values"_a, "scales"_a);
  module.def("round_to_bf16", &round_to_bf16, "x"_a, "out"_a);
  module.def(
      "convert_x",
      [](std::string_view recipe, nb::handle x, nb::handle values, nb::handle scales) {
        const Recipe how = parse_recipe(recipe);
        const ArrayIn from(x, "x");
        from.want(Element::bf16, {-1, -1});
        from.want_place(kHost);
        from.want_contiguous();
        const std::int64_t tokens = from.size(0);
        const std::int64_t hidden = from.size(1);
        const ArrayOut to(values, "values", Element::byte, {tokens, x_row_bytes(how, hidden)});
        const ArrayOut scale_bytes(scales, "scales", Element::byte,
                                   {tokens, x_scale_row_bytes(how, hidden)});
        convert_x(how, hidden, from.span<BFloat16>(), to.span<std::byte>(),
                  scale_bytes.span<std::byte>());
      },
      "recipe"_a, "x"_a, "values"_a, "scales"_a);
  module.def("x_row_bytes", [](std::string_view recipe, std::int64_t hidden) {
    return x_row_bytes(parse_recipe(recipe), hidden);
  });
  module.def("x_scale_row_bytes", [](std::string_view recipe, std::int64_t hidden) {
    return x_scale_row_bytes(parse_recipe(recipe), hidden);
  });
  module.def("choose_block_rows", &choose_block_rows, "expected_rows"_a);
  module.attr("capacity_step") = kCapacityStep;
}

}  // namespace megamoe::python
