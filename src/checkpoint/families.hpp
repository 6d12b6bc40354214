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

/// "model.layers.L."
std::string layer_prefix(const LayerFiles& files);

/// Reads top_k of layer.config and copies the sizes into the router; experts and hidden are set
/// already.
void read_top_k(const LayerFiles& files, const std::string& key, CheckpointLayer& layer);

/// Throws Error{unsupported}: `key` of config.json makes this layer a dense one.
[[noreturn]] void refuse_dense(const LayerFiles& files, const std::string& key);

/// Throws Error{format} if a tensor below `prefix` has not been read: a bias, a scale or an expert
/// that would be ignored in silence. Call it last.
void refuse_unread(const LayerFiles& files, const std::string& prefix);

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

/// One MLP [count * intermediate] as `count` shared experts: slices of its rows and columns. Sets
/// config.shared_weights where they are stored in another format than the experts, read before.
void read_shared_experts(const LayerFiles& files, const ExpertNames& names, CheckpointLayer& layer);

}  // namespace megamoe
