#include "cli/layer_source.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "checkpoint/safetensors.hpp"
#include "layout/shape.hpp"
#include "numerics/bf16.hpp"
#include "numerics/f16.hpp"
#include "numerics/recipe.hpp"
#include "plan/plan.hpp"
#include "routing/placement.hpp"

namespace megamoe::cli {
namespace {

constexpr std::int64_t kDefaultTokens = 64;

LayerConfig shape(std::int64_t experts, std::int64_t top_k, std::int64_t hidden,
                  std::int64_t intermediate, std::int64_t shared, Recipe recipe) {
  LayerConfig config;
  config.experts = experts;
  config.top_k = top_k;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.shared_experts = shared;
  config.recipe = recipe;
  return config;
}

std::map<std::string, LayerConfig> presets() {
  auto gpt_oss = shape(128, 4, 2880, 2880, 0, Recipe::bf16_fp4);
  gpt_oss.activation = Activation::swiglu_oai;
  auto flash = shape(256, 6, 4096, 2048, 1, Recipe::fp8_fp4);
  flash.activation_limit = 10.0f;
  flash.shared_weights = WeightFormat::fp8;
  auto pro = shape(384, 6, 7168, 3072, 1, Recipe::fp8_fp4);
  pro.activation_limit = 10.0f;
  pro.shared_weights = WeightFormat::fp8;
  return {{"demo", shape(32, 6, 1024, 256, 1, Recipe::fp8_fp4)},
          {"deepseek-v3", shape(256, 8, 7168, 2048, 1, Recipe::fp8_fp8)},
          {"deepseek-v4-flash", flash},
          {"deepseek-v4-pro", pro},
          {"qwen3-235b", shape(128, 8, 4096, 1536, 0, Recipe::bf16_bf16)},
          {"gpt-oss-120b", gpt_oss},
          {"mixtral-8x7b", shape(8, 2, 4096, 14336, 0, Recipe::bf16_bf16)}};
}

/// Values of a tensor as bf16; floats are rounded.
std::vector<BFloat16> as_bf16(const TensorView& tensor, const std::string& what) {
  const std::byte* bytes = tensor.bytes.data();
  std::int64_t count = 1;
  for (std::int64_t size : tensor.shape) count *= size;
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  switch (tensor.dtype) {
    case Dtype::bf16:
      std::memcpy(values.data(), bytes, values.size() * sizeof(BFloat16));
      return values;
    case Dtype::f32:
      for (std::size_t i = 0; i < values.size(); ++i) {
        float value;
        std::memcpy(&value, bytes + 4 * i, sizeof value);
        values[i] = to_bf16(value);
      }
      return values;
    case Dtype::f16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t value;
        std::memcpy(&value, bytes + 2 * i, sizeof value);
        values[i] = to_bf16(f16_to_float(value));
      }
      return values;
    default:
      fail(ErrorCode::format, "{} has a type that is no activation: BF16, F16 or F32 is wanted",
           what);
  }
}

}  // namespace

LayerConfig preset(const std::string& name) {
  const auto all = presets();
  const auto found = all.find(name);
  if (found != all.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& entry : all) names.push_back(entry.first);
  fail(ErrorCode::invalid_argument, "unknown preset '{}': one of {} is wanted", name,
       fmt::join(names, ", "));
}

Recipe recipe_for(WeightFormat weights, ActivationFormat activations) {
  const bool fp8 = activations == ActivationFormat::fp8;
  switch (weights) {
    case WeightFormat::fp4:
      return fp8 ? Recipe::fp8_fp4 : Recipe::bf16_fp4;
    case WeightFormat::fp8:
      return fp8 ? Recipe::fp8_fp8 : Recipe::bf16_fp8;
    case WeightFormat::bf16:
      break;
  }
  // FP8 activations ask for FP8 matrix units, so bf16 weights are quantised to the nearest format
  // they take.
  return fp8 ? Recipe::fp8_fp8 : Recipe::bf16_bf16;
}

LayerSource::LayerSource(const LayerRequest& request) : request_(request) {
  check_argument(request.ranks >= 1, "{} ranks: at least one is wanted", request.ranks);
  check_argument(request.ranks <= 1024, "{} ranks: at most 1024 are possible", request.ranks);
  check_argument(!request.tokens || *request.tokens >= 0, "{} tokens: 0 or more are wanted",
                 request.tokens.value_or(0));
  if (request.checkpoint.empty()) {
    open_preset();
  } else {
    open_checkpoint();
  }
  if (request.recipe) {
    check_argument(!request.activations,
                   "--recipe and --activations both name the format of x: give one");
    // A recipe with other weights than the layer's is one for all its experts.
    if (weight_format(*request.recipe) != weight_format(config_.recipe)) {
      config_.shared_weights.reset();
    }
    config_.recipe = *request.recipe;
  } else if (request.activations) {
    config_.recipe = recipe_for(weight_format(config_.recipe), *request.activations);
  }
  if (!request.shared_experts) config_.shared_experts = 0;
  if (!request.input.empty()) read_input();
  config_.max_tokens = 1;
  for (std::int64_t rank = 0; rank < ranks(); ++rank) {
    config_.max_tokens = std::max(config_.max_tokens, tokens(rank));
  }
  validate(config_);
}

void LayerSource::open_checkpoint() {
  check_argument(
      !request_.hidden && !request_.intermediate && !request_.experts && !request_.top_k,
      "sizes come from the checkpoint: leave --hidden, --intermediate, --experts and --top-k out");
  checkpoint_ = load_layer(request_.checkpoint, request_.layer);
  config_ = checkpoint_->config;
  description_ =
      fmt::format("{} layer {} of {}", checkpoint_->family, request_.layer, request_.checkpoint);
}

void LayerSource::open_preset() {
  config_ = preset(request_.preset);
  config_.hidden = request_.hidden.value_or(config_.hidden);
  config_.intermediate = request_.intermediate.value_or(config_.intermediate);
  config_.experts = request_.experts.value_or(config_.experts);
  config_.top_k = request_.top_k.value_or(config_.top_k);
  description_ = fmt::format("{} layer from seed {}", request_.preset, request_.seed);
}

void LayerSource::read_input() {
  check_argument(!request_.tokens,
                 "--input and --tokens both say how many tokens there are: give one");
  const SafetensorsFile file(request_.input);
  const TensorView& tensor = file.tensor("hidden_states");
  check_argument(tensor.shape.size() == 2 && tensor.shape[1] == config_.hidden,
                 "hidden_states of {} has the shape [{}]: [tokens, {}] is wanted", request_.input,
                 fmt::join(tensor.shape, ", "), config_.hidden);
  hidden_states_ = as_bf16(tensor, "hidden_states of " + request_.input);
}

std::int64_t LayerSource::tokens(std::int64_t rank) const {
  if (request_.input.empty()) return request_.tokens.value_or(kDefaultTokens);
  const Share share =
      share_of(static_cast<std::int64_t>(hidden_states_.size()) / config_.hidden, rank, ranks());
  return share.end - share.begin;
}

std::int64_t LayerSource::total_tokens() const {
  std::int64_t total = 0;
  for (std::int64_t rank = 0; rank < ranks(); ++rank) total += tokens(rank);
  return total;
}

SyntheticInput LayerSource::input(std::int64_t rank, std::int64_t turn) const {
  SyntheticInput input =
      request_.input.empty()
          ? synthetic_input(config_, request_.seed + static_cast<std::uint64_t>(turn), rank,
                            tokens(rank))
          : SyntheticInput{};
  if (!request_.input.empty()) {
    const Share share =
        share_of(static_cast<std::int64_t>(hidden_states_.size()) / config_.hidden, rank, ranks());
    input.x.assign(hidden_states_.begin() + share.begin * config_.hidden,
                   hidden_states_.begin() + share.end * config_.hidden);
  }
  const auto slots = static_cast<std::size_t>(tokens(rank) * config_.top_k);
  input.experts.resize(slots);
  input.weights.resize(slots);
  if (checkpoint_) route(checkpoint_->router, input.x, input.experts, input.weights);
  return input;
}

LayerWeights LayerSource::weights(std::int64_t rank) const {
  if (checkpoint_) {
    LayerWeights weights = checkpoint_->weights;
    if (!request_.shared_experts) weights.shared.clear();
    return weights;
  }
  if (rank < 0) return synthetic_weights(config_, request_.seed, 0, config_.experts);
  const LayerShape shape = make_shape(config_, ranks());
  const std::int64_t first = min64(rank * shape.experts_per_rank(), config_.experts);
  return synthetic_weights(config_, request_.seed, first, first + local_experts(shape, rank));
}

std::int64_t LayerSource::made_bytes() const {
  if (checkpoint_) return 0;
  const LayerShape shape = make_shape(config_, ranks());
  return shape.experts_per_rank() * synthetic_expert_bytes(config_, weight_format(config_.recipe)) +
         shape.shared_experts * synthetic_expert_bytes(config_, shared_weight_format(config_));
}

}  // namespace megamoe::cli
