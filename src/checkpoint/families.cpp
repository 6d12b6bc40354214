#include "checkpoint/families.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "numerics/recipe.hpp"

namespace megamoe {
namespace {

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

std::string layer_prefix(const LayerFiles& files) {
  return "model.layers." + std::to_string(files.layer) + ".";
}

void refuse_dense(const LayerFiles& files, const std::string& key) {
  files.config.refuse(key, "layer " + std::to_string(files.layer) + " is dense, it has no experts");
}

void read_top_k(const LayerFiles& files, const std::string& key, CheckpointLayer& layer) {
  layer.config.top_k = files.config.count(key);
  if (layer.config.top_k > layer.config.experts) {
    fail(ErrorCode::format, "{}: {} is {}, of {} experts", files.config.file(), key,
         layer.config.top_k, layer.config.experts);
  }
  layer.router.experts = layer.config.experts;
  layer.router.hidden = layer.config.hidden;
  layer.router.top_k = layer.config.top_k;
}

void refuse_unread(const LayerFiles& files, const std::string& prefix) {
  // Static scales of the activations: the recipes scale those by their own values.
  constexpr std::array<std::string_view, 2> kHarmless{".input_scale", ".input_global_scale"};
  for (const std::string& name : files.tensors.unread(prefix)) {
    const bool harmless =
        std::any_of(kHarmless.begin(), kHarmless.end(), [&](std::string_view suffix) {
          return name.size() > suffix.size() &&
                 name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
        });
    if (!harmless) {
      fail(ErrorCode::format,
           "tensor {} belongs to this layer and is not understood: it would be ignored in silence",
           name);
    }
  }
}

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
  if (up.format != gate.format || down.format != gate.format) {
    fail(ErrorCode::unsupported, "{}: its three matrices are stored in different formats",
         names.prefix);
  }
  if (gate.format != weight_format(layer.config.recipe)) layer.config.shared_weights = gate.format;
  const std::int64_t group = gate.format == WeightFormat::bf16  ? 1
                             : gate.format == WeightFormat::fp4 ? 32
                                                                : 128;
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
  config.require_text("hidden_act", "silu");
  CheckpointLayer layer;
  layer.family = "mixtral";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("intermediate_size");
  layer.config.experts = config.count("num_local_experts");
  read_top_k(files, "num_experts_per_tok", layer);
  const std::string prefix = layer_prefix(files) + "block_sparse_moe.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  read_experts(files, {prefix + "experts.", "w1", "w3", "w2"}, layer);
  refuse_unread(files, prefix);
  return layer;
}

CheckpointLayer load_qwen3_moe(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  config.require_text("hidden_act", "silu");
  const std::vector<std::int64_t> dense = config.counts_or_empty("mlp_only_layers");
  const std::int64_t step = config.count_or("decoder_sparse_step", 1);
  if (std::find(dense.begin(), dense.end(), files.layer) != dense.end()) {
    refuse_dense(files, "mlp_only_layers");
  }
  if (step == 0 || (files.layer + 1) % step != 0) refuse_dense(files, "decoder_sparse_step");
  CheckpointLayer layer;
  layer.family = "qwen3_moe";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts =
      config.count(config.has("num_experts") ? "num_experts" : "num_local_experts");
  read_top_k(files, "num_experts_per_tok", layer);
  layer.router.renormalise = config.flag("norm_topk_prob");
  const std::string prefix = layer_prefix(files) + "mlp.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  read_experts(files, {prefix + "experts.", "gate_proj", "up_proj", "down_proj"}, layer);
  refuse_unread(files, prefix);
  return layer;
}

}  // namespace megamoe
