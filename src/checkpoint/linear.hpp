// One linear layer of a checkpoint, in whichever of the published quantisations its tensors come.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "megamoe/weights.hpp"

#include "checkpoint/tensor_set.hpp"

namespace megamoe {

/// Memory of matrices that had to be converted; lives as long as the views.
using ConvertedWeights = std::vector<std::unique_ptr<std::vector<std::byte>>>;

/// The matrix [rows, columns] of the linear layer called `base`, by the tensors that there are:
///
///   weight BF16                                                          bf16
///   weight F8_E4M3, weight_scale_inv F32 [rows / 128, columns / 128]     fp8 (the scale
///   multiplies) weight I8, scale F8_E8M0 [rows, columns / 32]                        fp4
///   (DeepSeek-V4) weight_packed U8, weight_scale U8 [rows, columns / 32]               fp4
///   (compressed-tensors MXFP4) weight U8, weight_scale F8_E4M3 per 16, weight_scale_2 F32 bf16,
///   converted (ModelOpt NVFP4: it multiplies) weight_packed U8, weight_scale F8_E4M3 per 16,
///   weight_global_scale   bf16, converted (compressed-tensors NVFP4: it divides)
///
/// Throws Error{format} that names the tensor for anything else, and for scales that are missing.
MatrixView read_linear(const TensorSet& tensors, const std::string& base, std::int64_t rows,
                       std::int64_t columns, ConvertedWeights& converted);

}  // namespace megamoe
