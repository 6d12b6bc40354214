// The weights of a layer as the caller has them: views, nothing is copied until a Layer packs its
// own experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "megamoe/types.hpp"

namespace megamoe {

/// A row-major matrix [rows, columns]: rows are output features, columns the inner dimension.
/// Rows may be any number of bytes apart, so that interleaved gate and up rows are two views of one
/// tensor.
struct MatrixView {
  WeightFormat format = WeightFormat::bf16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::byte* values = nullptr;
  std::int64_t row_stride_bytes = 0;
  const std::byte* scales = nullptr;        ///< null for bf16
  std::int64_t scale_row_stride_bytes = 0;  ///< fp4: between rows; fp8: between blocks of 128 rows
};

/// One expert: y = down * act(gate * x, up * x). A bias is empty or has one value per row of its
/// matrix.
struct ExpertWeights {
  MatrixView gate;  ///< [I, H]
  MatrixView up;    ///< [I, H]
  MatrixView down;  ///< [H, I]
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  std::vector<float> down_bias;
};

/// All routed experts in order of their ids (a rank reads only its own), then the shared ones.
struct LayerWeights {
  std::vector<ExpertWeights> experts;
  std::vector<ExpertWeights> shared;
  std::shared_ptr<const void> owner;  ///< keeps the memory behind the views alive
};

}  // namespace megamoe
