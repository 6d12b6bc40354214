// DeepSeek-V3 and V4: shared experts, selection bias, FP8 or FP4 experts.
#include <string>

#include "base/check.hpp"
#include "checkpoint/families.hpp"

namespace megamoe {
namespace {

void read_groups(const LayerFiles& files, RouterConfig& router) {
  router.groups = files.config.count("n_group");
  router.top_groups = files.config.count("topk_group");
  const bool fits = router.experts % router.groups == 0 && router.top_groups <= router.groups &&
                    router.top_k <= router.experts / router.groups * router.top_groups;
  if (!fits) {
    fail(ErrorCode::format,
         "{}: n_group {} and topk_group {} leave no {} of {} experts: groups of equal size that "
         "hold them are wanted",
         files.config.file(), router.groups, router.top_groups, router.top_k, router.experts);
  }
}

}  // namespace

CheckpointLayer load_deepseek_v3(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  config.require_text("hidden_act", "silu");
  config.require_text("scoring_func", "sigmoid");
  config.require_text("topk_method", "noaux_tc");
  const std::int64_t dense = config.count_or("first_k_dense_replace", 0);
  const std::int64_t step = config.count_or("moe_layer_freq", 1);
  if (files.layer < dense) refuse_dense(files, "first_k_dense_replace");
  if (step == 0 || files.layer % step != 0) refuse_dense(files, "moe_layer_freq");
  CheckpointLayer layer;
  layer.family = "deepseek_v3";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts = config.count("n_routed_experts");
  layer.config.shared_experts = config.count_or("n_shared_experts", 0);
  read_top_k(files, "num_experts_per_tok", layer);
  layer.router.scores = RouterScores::sigmoid;
  layer.router.renormalise = config.flag("norm_topk_prob");
  layer.router.scaling = config.magnitude("routed_scaling_factor");
  read_groups(files, layer.router);
  const std::string prefix = layer_prefix(files) + "mlp.";
  layer.router.weight =
      files.tensors.floats(prefix + "gate.weight", {layer.config.experts, layer.config.hidden});
  layer.router.selection_bias =
      files.tensors.floats(prefix + "gate.e_score_correction_bias", {layer.config.experts});
  read_experts(files, {prefix + "experts.", "gate_proj", "up_proj", "down_proj"}, layer);
  read_shared_experts(files, {prefix + "shared_experts.", "gate_proj", "up_proj", "down_proj"},
                      layer);
  refuse_unread(files, prefix);
  return layer;
}

CheckpointLayer load_deepseek_v4(const LayerFiles& files) {
  const ModelConfig& config = files.config;
  config.require_text("hidden_act", "silu");
  config.require_text("scoring_func", "sqrtsoftplus");
  config.require_text("topk_method", "noaux_tc");
  CheckpointLayer layer;
  layer.family = "deepseek_v4";
  layer.config.hidden = config.count("hidden_size");
  layer.config.intermediate = config.count("moe_intermediate_size");
  layer.config.experts = config.count("n_routed_experts");
  layer.config.shared_experts = config.count_or("n_shared_experts", 0);
  read_top_k(files, "num_experts_per_tok", layer);
  // 0 means none, as in the authors' implementation.
  const float limit = config.magnitude("swiglu_limit");
  if (limit > 0) layer.config.activation_limit = limit;
  layer.router.scores = RouterScores::sqrt_softplus;
  // The authors' implementation has no such key and always renormalises these scores.
  layer.router.renormalise = !config.has("norm_topk_prob") || config.flag("norm_topk_prob");
  layer.router.scaling = config.magnitude("routed_scaling_factor");
  const std::string prefix = "layers." + std::to_string(files.layer) + ".ffn.";
  if (files.tensors.has(prefix + "gate.tid2eid") ||
      files.layer < config.count_or("num_hash_layers", 0)) {
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
  refuse_unread(files, prefix);
  return layer;
}

}  // namespace megamoe
