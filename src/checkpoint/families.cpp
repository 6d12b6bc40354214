#include "checkpoint/families.hpp"

#include <algorithm>
#include <string>

#include "base/check.hpp"

namespace megamoe {
namespace {

std::string layer_prefix(const LayerFiles& files) {
  return "model.layers." + std::to_string(files.layer) + ".";
}

/// Copies that loaders of all families make: sizes into the router too.
void size_router(CheckpointLayer& layer) {
  layer.router.experts = layer.config.experts;
  layer.router.hidden = layer.config.hidden;
  layer.router.top_k = layer.config.top_k;
}

void require_silu(const LayerFiles& files) {
  files.config.require_text("hidden_act", "silu");
}

Recipe keeping(WeightFormat format) {
  switch (format) {
    case WeightFormat::fp4:
      return Recipe::bf16_fp4;
    case WeightFormat::fp8:
      return Recipe::bf16_fp8;
    case WeightFormat::bf16:
      break;
  }
  return Recipe::bf16_bf16;
}

/// Rows [first, first + rows) of a matrix.
MatrixView row_slice(MatrixView matrix, std::int64_t first, std::int64_t rows) {
  matrix.values += first * matrix.row_stride_bytes;
  if (matrix.format == WeightFormat::fp4) matrix.scales += first * matrix.scale_row_stride_bytes;
  if (matrix.format == WeightFormat::fp8)
    matrix.scales += first / 128 * matrix.scale_row_stride_bytes;
  matrix.rows = rows;
  return matrix;
}

/// Columns [first, first + columns) of a matrix; `first` at the beginning of a group of scales.
MatrixView column_slice(MatrixView matrix, std::int64_t first, std::int64_t columns) {
  switch (matrix.format) {
    case WeightFormat::bf16:
      matrix.values += 2 * first;
      break;
    case WeightFormat::fp4:
      matrix.values += first / 2;
      matrix.scales += first / 32;
      break;
    case WeightFormat::fp8:
      matrix.values += first;
      matrix.scales += first / 128 * 4;
      break;
  }
  matrix.columns = columns;
  return matrix;
}

}  // namespace

void read_experts(const LayerFiles& files, const ExpertNames& names, CheckpointLayer& layer) {
  const std::int64_t h = layer.config.hidden;
  const std::int64_t i = layer.config.intermediate;
  for (std::int64_t e = 0; e < layer.config.experts; ++e) {
    const std::string base = names.prefix + std::to_string(e) + ".";
    ExpertWeights expert;
    expert.gate = read_linear(files.tensors, base + names.gate, i, h, files.converted);
    expert.up = read_linear(files.tensors, base + names.up, i, h, files.converted);
    expert.down = read_linear(files.tensors, base + names.down, h, i, files.converted);
    layer.weights.experts.push_back(std::move(expert));
  }
  const WeightFormat format = layer.weights.experts.front().gate.format;
  for (std::size_t e = 0; e < layer.weights.experts.size(); ++e) {
    const ExpertWeights& expert = layer.weights.experts[e];
    if (expert.gate.format != format || expert.up.format != format ||
        expert.down.format != format) {
      fail(ErrorCode::unsupported,
           "{}{} is stored in another format than expert 0: a layer has one", names.prefix, e);
    }
  }
  layer.config.recipe = keeping(format);
}

void read_shared_experts(const LayerFiles& files, const ExpertNames& names,
                         CheckpointLayer& layer) {
  const std::int64_t count = layer.config.shared_experts;
  if (count == 0) return;
  const std::int64_t h = layer.config.hidden;
  const std::int64_t i = layer.config.intermediate;
  const MatrixView gate =
      read_linear(files.tensors, names.prefix + names.gate, count * i, h, files.converted);
  const MatrixView up =
      read_linear(files.tensors, names.prefix + names.up, count * i, h, files.converted);
  const MatrixView down =
      read_linear(files.tensors, names.prefix + names.down, h, count * i, files.converted);
  const std::int64_t group = gate.format == WeightFormat::fp8   ? 128
                             : gate.format == WeightFormat::fp4 ? 32
                                                                : 1;
  if (count > 1 && i % group != 0) {
    fail(ErrorCode::unsupported,
         "{}: {} shared experts of {} intermediates cannot be told apart in blocks of {} scales",
         names.prefix, count, i, group);
  }
  for (std::int64_t s = 0; s < count; ++s) {
    ExpertWeights expert;
    expert.gate = row_slice(gate, s * i, i);
    expert.up = row_slice(up, s * i, i);
    expert.down = column_slice(down, s * i, i);
    layer.weights.shared.push_back(std::move(expert));
  }
}

CheckpointLayer load_mixtral(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  require_silu(files);
  CheckpointLayer layer;
  layer.family = "mixtral";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("intermediate_size");
  layer.config.experts = config.count("num_local_experts");
  layer.config.top_k = config.count("num_experts_per_tok");
  size_router(layer);
  const std::string prefix = layer_prefix(files) + "block_sparse_moe.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  read_experts(files, {prefix + "experts.", "w1", "w3", "w2"}, layer);
  return layer;
}

CheckpointLayer load_qwen3_moe(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  require_silu(files);
  const std::vector<std::int64_t> dense = config.counts_or_empty("mlp_only_layers");
  const std::int64_t step = config.count_or("decoder_sparse_step", 1);
  if (std::find(dense.begin(), dense.end(), files.layer) != dense.end() || step == 0 ||
      (files.layer + 1) % step != 0) {
    config.refuse("mlp_only_layers",
                  "layer " + std::to_string(files.layer) + " is dense, it has no experts");
  }
  CheckpointLayer layer;
  layer.family = "qwen3_moe";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts =
      config.count(config.has("num_experts") ? "num_experts" : "num_local_experts");
  layer.config.top_k = config.count("num_experts_per_tok");
  size_router(layer);
  layer.router.renormalise = config.flag_or("norm_topk_prob", false);
  const std::string prefix = layer_prefix(files) + "mlp.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  read_experts(files, {prefix + "experts.", "gate_proj", "up_proj", "down_proj"}, layer);
  return layer;
}

CheckpointLayer load_deepseek_v3(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  require_silu(files);
  config.require_text("scoring_func", "sigmoid");
  config.require_text("topk_method", "noaux_tc");
  const std::int64_t dense = config.count_or("first_k_dense_replace", 0);
  const std::int64_t step = config.count_or("moe_layer_freq", 1);
  if (files.layer < dense || step == 0 || files.layer % step != 0) {
    config.refuse("first_k_dense_replace",
                  "layer " + std::to_string(files.layer) + " is dense, it has no experts");
  }
  CheckpointLayer layer;
  layer.family = "deepseek_v3";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts = config.count("n_routed_experts");
  layer.config.shared_experts = config.count_or("n_shared_experts", 0);
  layer.config.top_k = config.count("num_experts_per_tok");
  size_router(layer);
  layer.router.scores = RouterScores::sigmoid;
  layer.router.renormalise = config.flag_or("norm_topk_prob", true);
  layer.router.scaling = static_cast<float>(config.number_or("routed_scaling_factor", 1.0));
  layer.router.groups = config.count_or("n_group", 1);
  layer.router.top_groups = config.count_or("topk_group", 1);
  const std::string prefix = layer_prefix(files) + "mlp.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  layer.router.selection_bias =
      files.tensors.floats(prefix + "gate.e_score_correction_bias", {layer.config.experts});
  read_experts(files, {prefix + "experts.", "gate_proj", "up_proj", "down_proj"}, layer);
  read_shared_experts(files, {prefix + "shared_experts.", "gate_proj", "up_proj", "down_proj"},
                      layer);
  return layer;
}

CheckpointLayer load_deepseek_v4(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  require_silu(files);
  config.require_text("scoring_func", "sqrtsoftplus");
  CheckpointLayer layer;
  layer.family = "deepseek_v4";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts = config.count("n_routed_experts");
  layer.config.shared_experts = config.count_or("n_shared_experts", 0);
  layer.config.top_k = config.count("num_experts_per_tok");
  const double limit = config.number_or("swiglu_limit", 0.0);
  if (limit > 0) layer.config.activation_limit = static_cast<float>(limit);
  size_router(layer);
  layer.router.scores = RouterScores::sqrt_softplus;
  layer.router.renormalise = config.flag_or("norm_topk_prob", true);
  layer.router.scaling = static_cast<float>(config.number_or("routed_scaling_factor", 1.0));
  const std::string prefix = "layers." + std::to_string(files.layer) + ".ffn.";
  if (files.tensors.has(prefix + "gate.tid2eid")) {
    fail(ErrorCode::unsupported,
         "{}gate.tid2eid: this layer looks experts up by token id, which are not given: use a "
         "later layer",
         prefix);
  }
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  layer.router.selection_bias = files.tensors.floats(prefix + "gate.bias", {layer.config.experts});
  read_experts(files, {prefix + "experts.", "w1", "w3", "w2"}, layer);
  read_shared_experts(files, {prefix + "shared_experts.", "w1", "w3", "w2"}, layer);
  return layer;
}

}  // namespace megamoe
