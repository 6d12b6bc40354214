// LayerWeights as views into arrays of Python.
#include "python/src/weights.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

WeightFormat parse_format(std::string_view name) {
  if (name == "bf16") return WeightFormat::bf16;
  if (name == "fp4") return WeightFormat::fp4;
  if (name == "fp8") return WeightFormat::fp8;
  fail(ErrorCode::invalid_argument, "weights of format '{}': bf16, fp4 or fp8 is wanted", name);
}

std::int64_t values_per_item(WeightFormat format) {
  return format == WeightFormat::fp4 ? 2 : 1;
}

/// The values of a stack of matrices [experts, rows, columns], as the caller stores them.
void check_values(const ArrayIn& values, WeightFormat format) {
  values.want_ndim({3});
  values.want(format == WeightFormat::bf16 ? Element::bf16 : Element::byte, {-1, -1, -1});
  values.want_place(kHost);
  values.want_dense_rows();
}

/// Some rows of a stack's matrices: every step-th from `first` on.
struct Rows {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
  std::int64_t first_scale = 0;  ///< row of the scales that serves `first`
};

MatrixView rows_of(const MatrixStack& stack, std::int64_t e, const Rows& rows) {
  const ArrayIn& values = *stack.values;
  MatrixView view;
  view.format = stack.format;
  view.rows = rows.count;
  view.columns = values.size(2) * values_per_item(stack.format);
  const std::int64_t row_bytes = values.stride(1) * values.item_bytes();
  view.values =
      values.bytes() + e * values.stride(0) * values.item_bytes() + rows.first * row_bytes;
  view.row_stride_bytes = row_bytes * rows.step;
  if (!stack.scales) return view;
  const ArrayIn& scales = *stack.scales;
  const std::int64_t scale_row_bytes = scales.stride(1) * scales.item_bytes();
  view.scales = scales.bytes() + e * scales.stride(0) * scales.item_bytes() +
                rows.first_scale * scale_row_bytes;
  view.scale_row_stride_bytes = scale_row_bytes * rows.step;
  return view;
}

std::vector<float> bias_of(const MatrixStack& stack, std::int64_t e, const Rows& rows) {
  std::vector<float> bias;
  if (!stack.bias) return bias;
  const float* row = stack.bias->as<float>() + e * stack.bias->stride(0);
  for (std::int64_t r = 0; r < rows.count; ++r) bias.push_back(row[rows.first + r * rows.step]);
  return bias;
}

/// `parts`: 2 where gate and up stand in one matrix, each with its own blocks of scales; else 1.
void check_scales(const MatrixStack& stack, std::int64_t parts) {
  const ArrayIn& values = *stack.values;
  const ArrayIn& scales = *stack.scales;
  const std::int64_t columns = values.size(2) * values_per_item(stack.format);
  if (stack.format == WeightFormat::fp4) {
    scales.want(Element::byte, {values.size(0), values.size(1), ceil_div(columns, 32)});
  } else {
    scales.want(Element::f32, {values.size(0), parts * ceil_div(values.size(1) / parts, 128),
                               ceil_div(columns, 128)});
  }
  scales.want_place(kHost);
  scales.want_dense_rows();
}

/// The arrays of one of the two matrices, and what the messages call them.
struct Given {
  nb::handle values;
  nb::handle scales;
  nb::handle bias;
  std::array<std::string_view, 3> names;
  std::int64_t parts;
};

MatrixStack stack_of(WeightFormat format, const Given& given) {
  const auto& names = given.names;
  MatrixStack stack{.format = format, .values = {}, .scales = {}, .bias = {}};
  stack.values.emplace(given.values, names[0]);
  check_values(*stack.values, format);
  if (!given.scales.is_none()) {
    check_argument(format != WeightFormat::bf16, "{} are given, but bf16 weights have no scales",
                   names[1]);
    stack.scales.emplace(given.scales, names[1]);
    check_scales(stack, given.parts);
  } else {
    check_argument(format == WeightFormat::bf16, "{} are missing: {} has scales", names[1],
                   format == WeightFormat::fp4 ? "fp4" : "fp8");
  }
  if (!given.bias.is_none()) {
    stack.bias.emplace(given.bias, names[2]);
    stack.bias->want(Element::f32, {stack.values->size(0), stack.values->size(1)});
    stack.bias->want_place(kHost);
    stack.bias->want_dense_rows();
  }
  return stack;
}

/// gate and up stand one after the other in w1, or row by row.
ExpertWeights expert_of(const MatrixStack& w1, const MatrixStack& w2, std::int64_t e,
                        bool interleaved) {
  const std::int64_t count = w1.values->size(1) / 2;
  const bool by_blocks = w1.format == WeightFormat::fp8;
  const Rows gate{.step = interleaved ? 2 : 1, .count = count};
  const std::int64_t up_first = interleaved ? 1 : count;
  const Rows up{.first = up_first,
                .step = gate.step,
                .count = count,
                .first_scale = by_blocks ? ceil_div(count, 128) : up_first};
  const Rows all{.count = w2.values->size(1)};
  return {.gate = rows_of(w1, e, gate),
          .up = rows_of(w1, e, up),
          .down = rows_of(w2, e, all),
          .gate_bias = bias_of(w1, e, gate),
          .up_bias = bias_of(w1, e, up),
          .down_bias = bias_of(w2, e, all)};
}

void check_pair(const MatrixStack& w1, const MatrixStack& w2, bool interleaved) {
  const std::int64_t rows = w1.values->size(1);
  check_argument(rows % 2 == 0, "w1 has {} rows: gate and up have as many each", rows);
  check_argument(w1.values->size(0) == w2.values->size(0), "w1 has {} experts, w2 has {}",
                 w1.values->size(0), w2.values->size(0));
  const std::int64_t columns = w2.values->size(2) * values_per_item(w2.format);
  check_argument(columns == rows / 2,
                 "w2 has {} columns: half the rows of w1, which are gate and up, is {}", columns,
                 rows / 2);
  check_argument(!(interleaved && w1.format == WeightFormat::fp8),
                 "fp8 weights have scales of 128 rows: gate and up rows cannot alternate");
}

}  // namespace

std::vector<ExpertWeights> PythonWeights::stack(const StackArguments& given) {
  const WeightFormat format = parse_format(given.format);
  MatrixStack w1 = stack_of(format, {.values = given.w1,
                                     .scales = given.w1_scales,
                                     .bias = given.w1_bias,
                                     .names = {"w1", "w1_scales", "w1_bias"},
                                     .parts = 2});
  MatrixStack w2 = stack_of(format, {.values = given.w2,
                                     .scales = given.w2_scales,
                                     .bias = given.w2_bias,
                                     .names = {"w2", "w2_scales", "w2_bias"},
                                     .parts = 1});
  check_pair(w1, w2, given.interleaved);
  std::vector<ExpertWeights> experts;
  for (std::int64_t e = 0; e < w1.values->size(0); ++e) {
    experts.push_back(expert_of(w1, w2, e, given.interleaved));
  }
  kept_.push_back(std::move(w1));
  kept_.push_back(std::move(w2));
  return experts;
}

void PythonWeights::add_routed(const StackArguments& given) {
  for (ExpertWeights& expert : stack(given)) weights.experts.push_back(std::move(expert));
}

void PythonWeights::add_shared(const StackArguments& given) {
  for (ExpertWeights& expert : stack(given)) weights.shared.push_back(std::move(expert));
}

void PythonWeights::add_absent(std::int64_t experts) {
  check_argument(experts >= 0, "{} absent experts", experts);
  weights.experts.resize(weights.experts.size() + static_cast<std::size_t>(experts));
}

void bind_weights(nb::module_& module) {
  using Add = void (PythonWeights::*)(const StackArguments&);
  const auto adder = [](Add add) {
    return [add](PythonWeights& self, std::string_view format, nb::handle w1, nb::handle w2,
                 nb::handle w1_scales, nb::handle w2_scales, nb::handle w1_bias, nb::handle w2_bias,
                 bool interleaved) {
      (self.*add)({format, w1, w2, w1_scales, w2_scales, w1_bias, w2_bias, interleaved});
    };
  };
  const auto none = nb::none();
  nb::class_<PythonWeights>(module, "Weights")
      .def(nb::init<>())
      .def("add_routed", adder(&PythonWeights::add_routed), "format"_a, "w1"_a, "w2"_a,
           "w1_scales"_a.none() = none, "w2_scales"_a.none() = none, "w1_bias"_a.none() = none,
           "w2_bias"_a.none() = none, "interleaved"_a = false)
      .def("add_shared", adder(&PythonWeights::add_shared), "format"_a, "w1"_a, "w2"_a,
           "w1_scales"_a.none() = none, "w2_scales"_a.none() = none, "w1_bias"_a.none() = none,
           "w2_bias"_a.none() = none, "interleaved"_a = false)
      .def("add_absent", &PythonWeights::add_absent, "experts"_a)
      .def_prop_ro("routed", [](const PythonWeights& self) { return self.weights.experts.size(); })
      .def_prop_ro("shared", [](const PythonWeights& self) { return self.weights.shared.size(); });
}

}  // namespace megamoe::python
