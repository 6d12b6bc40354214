// The model families, one function each.
#pragma once

#include <cstdint>
#include <string>

#include "megamoe/checkpoint.hpp"

#include "checkpoint/linear.hpp"
#include "checkpoint/model_config.hpp"
#include "checkpoint/tensor_set.hpp"

namespace megamoe {

/// What a family's loader reads from, and where its views' converted memory goes.
struct LayerFiles {
  const ModelConfig& config;
  const TensorSet& tensors;
  std::int64_t layer;
  ConvertedWeights& converted;
};

CheckpointLayer load_mixtral(const LayerFiles& files);
CheckpointLayer load_qwen3_moe(const LayerFiles& files);
CheckpointLayer load_gpt_oss(const LayerFiles& files);
CheckpointLayer load_deepseek_v3(const LayerFiles& files);
CheckpointLayer load_deepseek_v4(const LayerFiles& files);

/// Names of an expert's three linear layers: prefix + expert + "." + name.
struct ExpertNames {
  std::string prefix;
  const char* gate;
  const char* up;
  const char* down;
};

/// Reads experts 0 to count - 1. Sets config.recipe to the one that keeps the weights as they are,
/// with bf16 activations; all experts must be stored alike.
void read_experts(const LayerFiles& files, const ExpertNames& names, CheckpointLayer& layer);

/// One MLP [count * intermediate] as `count` shared experts: slices of its rows and columns.
void read_shared_experts(const LayerFiles& files, const ExpertNames& names, CheckpointLayer& layer);

}  // namespace megamoe
