// gpt-oss: all experts in one tensor, gate and up rows interleaved, MXFP4 with biases.
#include <utility>

#include "base/check.hpp"
#include "checkpoint/families.hpp"
#include "numerics/activation.hpp"

namespace megamoe {
namespace {

/// Blocks [experts, rows, columns / 32, 16] and scales [experts, rows, columns / 32] of one of the
/// two projections.
class Projection {
 public:
  Projection(const LayerFiles& files, const std::string& name, std::int64_t experts,
             std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns) {
    if (columns % 32 != 0) {
      fail(ErrorCode::format, "{} has {} columns: a multiple of 32 is wanted, one scale for each",
           name, columns);
    }
    const TensorSet& tensors = files.tensors;
    blocks_ = tensors.bytes(name + "_blocks", Dtype::u8, {experts, rows, columns / 32, 16}).data();
    scales_ = tensors.bytes(name + "_scales", Dtype::u8, {experts, rows, columns / 32}).data();
    bias_ = tensors.floats(name + "_bias", {experts, rows});
  }

  /// Every `step`-th row of an expert, from `first`.
  MatrixView matrix(std::int64_t expert, std::int64_t first, std::int64_t step) const {
    const std::int64_t row = expert * rows_ + first;
    return {WeightFormat::fp4,
            rows_ / step,
            columns_,
            blocks_ + row * columns_ / 2,
            step * columns_ / 2,
            scales_ + row * columns_ / 32,
            step * columns_ / 32};
  }

  std::vector<float> bias(std::int64_t expert, std::int64_t first, std::int64_t step) const {
    std::vector<float> values;
    for (std::int64_t row = first; row < rows_; row += step) {
      values.push_back(bias_[static_cast<std::size_t>(expert * rows_ + row)]);
    }
    return values;
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  const std::byte* blocks_ = nullptr;
  const std::byte* scales_ = nullptr;
  std::vector<float> bias_;
};

float read_limit(const ModelConfig& config) {
  if (!config.has("swiglu_limit")) return kSwigluOaiLimit;
  const float limit = config.magnitude("swiglu_limit");
  if (limit == 0) config.refuse("swiglu_limit", "a limit of 0 would clamp everything away");
  return limit;
}

}  // namespace

CheckpointLayer load_gpt_oss(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  config.require_text("hidden_act", "silu");
  CheckpointLayer layer;
  layer.family = "gpt_oss";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("intermediate_size");
  layer.config.experts = config.count("num_local_experts");
  read_top_k(files, config.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token",
             layer);
  layer.config.recipe = Recipe::bf16_fp4;
  layer.config.activation = Activation::swiglu_oai;
  layer.config.activation_limit = read_limit(config);
  const std::string prefix = layer_prefix(files) + "mlp.";
  const std::int64_t e = layer.config.experts;
  const std::int64_t h = layer.config.hidden;
  const std::int64_t i = layer.config.intermediate;
  // A softmax over the chosen logits is the softmax over all, renormalised over the chosen.
  layer.router.weight = files.tensors.floats(prefix + "router.weight", {e, h});
  layer.router.bias = files.tensors.floats(prefix + "router.bias", {e});
  const Projection gate_up(files, prefix + "experts.gate_up_proj", e, 2 * i, h);
  const Projection down(files, prefix + "experts.down_proj", e, h, i);
  for (std::int64_t expert = 0; expert < e; ++expert) {
    ExpertWeights weights;
    weights.gate = gate_up.matrix(expert, 0, 2);
    weights.up = gate_up.matrix(expert, 1, 2);
    weights.down = down.matrix(expert, 0, 1);
    weights.gate_bias = gate_up.bias(expert, 0, 2);
    weights.up_bias = gate_up.bias(expert, 1, 2);
    weights.down_bias = down.bias(expert, 0, 1);
    layer.weights.experts.push_back(std::move(weights));
  }
  refuse_unread(files, prefix);
  return layer;
}

}  // namespace megamoe
