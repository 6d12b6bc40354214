#include "megamoe/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.hpp"
#include "checkpoint/families.hpp"
#include "checkpoint/json.hpp"

namespace megamoe {
namespace {

struct Family {
  std::string_view model_type;
  CheckpointLayer (*load)(const LayerFiles&);
};
constexpr std::array<Family, 6> kFamilies{{{"mixtral", load_mixtral},
                                           {"qwen3_moe", load_qwen3_moe},
                                           {"gpt_oss", load_gpt_oss},
                                           {"deepseek_v3", load_deepseek_v3},
                                           {"deepseek_r1", load_deepseek_v3},
                                           {"deepseek_v4", load_deepseek_v4}}};

// Methods whose tensors read_linear and gpt-oss understand.
constexpr std::array<std::string_view, 5> kQuantisations{"fp8", "mxfp4", "compressed-tensors",
                                                         "modelopt", "fp4"};

// What changes the arithmetic of such a layer in one family or another. A family reads its own.
constexpr std::array<std::string_view, 19> kArithmeticKeys{"decoder_sparse_step",
                                                           "first_k_dense_replace",
                                                           "hidden_act",
                                                           "mlp_bias",
                                                           "mlp_only_layers",
                                                           "moe_layer_freq",
                                                           "n_group",
                                                           "n_shared_experts",
                                                           "norm_topk_prob",
                                                           "num_hash_layers",
                                                           "num_shared_experts",
                                                           "routed_scaling_factor",
                                                           "scoring_func",
                                                           "shared_expert_intermediate_size",
                                                           "swiglu_alpha",
                                                           "swiglu_limit",
                                                           "swiglu_limits",
                                                           "topk_group",
                                                           "topk_method"};

// Weights behind a rotation or a pruning mask are not those that the tensors show.
constexpr std::array<std::string_view, 2> kTransformKeys{"sparsity_config", "transform_config"};

/// What the views need: mapped files, and what was converted.
struct Owner {
  std::shared_ptr<const void> files;
  ConvertedWeights converted;
};

const Family& family_of(const ModelConfig& config) {
  const std::string model_type = config.text("model_type");
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    known.push_back(family.model_type);
  }
  config.refuse("model_type", fmt::format("'{}' is not known: {} are", shown(model_type),
                                          fmt::join(known, ", ")));
}

/// What the tensors themselves do not say about how they are to be read.
void check_quantisation(const ModelConfig& config) {
  const std::optional<ModelConfig> section = config.object("quantization_config");
  if (!section) return;
  const std::string method = section->text("quant_method");
  if (std::find(kQuantisations.begin(), kQuantisations.end(), method) == kQuantisations.end()) {
    section->refuse("quant_method", fmt::format("'{}' is not understood: {} are", shown(method),
                                                fmt::join(kQuantisations, ", ")));
  }
  const std::vector<std::int64_t> blocks = section->counts_or_empty("weight_block_size");
  if (section->has("weight_block_size") && blocks != std::vector<std::int64_t>{128, 128}) {
    section->refuse("weight_block_size",
                    fmt::format("[{}] is not understood: [128, 128] is", fmt::join(blocks, ", ")));
  }
  section->require_text("fmt", "e4m3");
  if (method == "fp8") section->require_text("activation_scheme", "dynamic");
  if (method == "modelopt") section->require_text("quant_algo", "NVFP4");
  if (method == "compressed-tensors" && section->has("format") &&
      section->text("format") != "mxfp4-pack-quantized") {
    section->require_text("format", "nvfp4-pack-quantized");
  }
  section->require_all_read(kTransformKeys);
}

}  // namespace

CheckpointLayer load_layer(const std::filesystem::path& directory, std::int64_t layer) {
  const ModelConfig config(directory);
  const Family& family = family_of(config);
  check_quantisation(config);
  const std::int64_t layers = config.count("num_hidden_layers");
  check_argument(layer >= 0 && layer < layers, "layer {} of {}: 0 to {} are there", layer,
                 directory.string(), layers - 1);

  const TensorSet tensors(directory);
  auto owner = std::make_shared<Owner>();
  CheckpointLayer result = family.load({config, tensors, layer, owner->converted});
  config.require_all_read(kArithmeticKeys);
  if (owner->converted.dequantised)
    result.note = "NVFP4 weights were dequantised to bf16: no recipe keeps them as they are";
  owner->files = tensors.owner();
  result.weights.owner = std::move(owner);
  return result;
}

}  // namespace megamoe
