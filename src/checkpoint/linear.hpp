// One linear layer of a checkpoint, in whichever of the published quantisations its tensors come.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "megamoe/weights.hpp"

#include "checkpoint/tensor_set.hpp"

namespace megamoe {

/// What had to be converted; lives as long as the views.
struct ConvertedWeights {
  std::vector<std::vector<std::byte>> memory;
  bool dequantised = false;  ///< weights came as NVFP4 and are bf16 now
};

/// The matrix [rows, columns] = [N, K] of the linear layer called `base`, by the tensors there are:
///
/// | tensors                                                                       | becomes |
/// |-------------------------------------------------------------------------------|---------|
/// | weight BF16                                                                   | bf16    |
/// | weight F8_E4M3, weight_scale_inv F32 or BF16 per 128 x 128 (it multiplies)    | fp8     |
/// | weight F8_E4M3, scale F8_E8M0 per 128 x 128 (DeepSeek-V4)                      | fp8     |
/// | weight I8, scale F8_E8M0 per 32 (DeepSeek-V4)                                 | fp4     |
/// | weight_packed U8, weight_scale U8 per 32 (compressed-tensors MXFP4)           | fp4     |
/// | weight U8, weight_scale F8_E4M3 per 16, weight_scale_2 F32 (ModelOpt NVFP4)   | bf16    |
/// | weight_packed U8, weight_scale F8_E4M3 per 16, weight_global_scale F32, which | bf16    |
/// | divides (compressed-tensors NVFP4)                                            |         |
///
/// Throws Error{format} that names file and tensor for anything else, and for scales that are
/// missing.
MatrixView read_linear(const TensorSet& tensors, const std::string& base, std::int64_t rows,
                       std::int64_t columns, ConvertedWeights& converted);

}  // namespace megamoe
