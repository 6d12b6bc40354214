// Weights of a layer as arrays of Python hold them: views, and what keeps the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "megamoe/weights.hpp"

#include "python/src/arrays.hpp"

namespace megamoe::python {

/// Matrices of several experts [experts, rows, columns], with their scales and biases.
struct MatrixStack {
  WeightFormat format = WeightFormat::bf16;
  std::optional<ArrayIn> values;
  std::optional<ArrayIn> scales;  ///< absent for bf16
  std::optional<ArrayIn> bias;    ///< [experts, rows] f32
};

/// What Python passes for some experts; scales and biases may be None.
struct StackArguments {
  std::string_view format;
  nb::handle w1;
  nb::handle w2;
  nb::handle w1_scales;
  nb::handle w2_scales;
  nb::handle w1_bias;
  nb::handle w2_bias;
  bool interleaved;  ///< rows of w1 alternate gate, up; else gate rows stand before up rows
};

/// Views into the caller's arrays, which live as long as this value. Not copied: see `weights`.
class PythonWeights {
 public:
  /// Experts with the next ids.
  void add_routed(const StackArguments& given);
  void add_shared(const StackArguments& given);
  /// Experts of other ranks, which this one never reads.
  void add_absent(std::int64_t experts);

  LayerWeights weights;

 private:
  std::vector<ExpertWeights> stack(const StackArguments& given);

  std::vector<MatrixStack> kept_;
};

}  // namespace megamoe::python
