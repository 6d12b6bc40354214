// One row of the pool through the scalar kernels. Bits do not depend on how many rows a kernel
// gets, so these are the values that the engine had.
#pragma once

#include <optional>
#include <vector>

#include "cpu/kernels.hpp"
#include "layout/shape.hpp"

namespace megamoe::test {

/// source.rows is 1. [strips][padded rows][32]: the row is the first of each strip.
inline std::vector<float> multiply_row(const PanelSource& source, const std::byte* weights,
                                       const StripShape& shape) {
  const VectorKernels& kernels = vector_kernels(InstructionSet::scalar);
  std::vector<float> panel(static_cast<std::size_t>(source.columns));
  std::vector<float> sums(
      static_cast<std::size_t>(shape.strips * kernels.padded_rows(1) * kStripLanes));
  kernels.load_panel(source, panel.data());
  kernels.accumulate({.format = shape.format,
                      .weights = weights,
                      .strip_stride_bytes = shape.strip_bytes(),
                      .strips = shape.strips,
                      .chunks = shape.chunks,
                      .panel = panel.data(),
                      .rows = 1,
                      .sums = sums.data()});
  return sums;
}

/// swiglu of a row's GEMM-1 sums, times the route's weight; 16 activations per strip.
inline std::vector<float> activate_row(const std::vector<float>& sums, std::int64_t strips,
                                       float weight) {
  const VectorKernels& kernels = vector_kernels(InstructionSet::scalar);
  std::vector<float> activations(kIntermediateGroup);
  kernels.activate({.sums = sums.data(),
                    .strips = strips,
                    .padded_rows = kernels.padded_rows(1),
                    .rows = 1,
                    .gate_bias = nullptr,
                    .up_bias = nullptr,
                    .row_weights = &weight,
                    .rule = make_activation_rule(Activation::swiglu, std::nullopt),
                    .activations = activations.data(),
                    .activation_stride = kIntermediateGroup});
  return activations;
}

}  // namespace megamoe::test
