#include "megamoe/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.hpp"
#include "checkpoint/families.hpp"

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
constexpr std::array<std::string_view, 6> kQuantisations{
    "", "fp8", "mxfp4", "compressed-tensors", "modelopt", "fp4"};

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
  config.refuse("model_type",
                fmt::format("'{}' is not known: {} are", model_type, fmt::join(known, ", ")));
}

}  // namespace

CheckpointLayer load_layer(const std::filesystem::path& directory, std::int64_t layer) {
  const ModelConfig config(directory);
  const Family& family = family_of(config);
  const std::string quantisation = config.nested_text("quantization_config", "quant_method");
  if (std::find(kQuantisations.begin(), kQuantisations.end(), quantisation) ==
      kQuantisations.end()) {
    config.refuse("quantization_config", "quant_method '" + quantisation + "' is not understood");
  }
  const std::int64_t layers = config.count("num_hidden_layers");
  check_argument(layer >= 0 && layer < layers, "layer {} of {}: 0 to {} are there", layer,
                 directory.string(), layers - 1);

  const TensorSet tensors(directory);
  auto owner = std::make_shared<Owner>();
  CheckpointLayer result = family.load({config, tensors, layer, owner->converted});
  owner->files = tensors.owner();
  result.weights.owner = std::move(owner);
  return result;
}

}  // namespace megamoe
