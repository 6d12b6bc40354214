// A checkpoint whose routed and shared experts are stored in different formats, from its files to
// the layer's outputs.
#include "api/layer_ranks.hpp"
#include "checkpoint/model_folder.hpp"
#include "checkpoint/synthetic_models.hpp"
#include "cpu/reference.hpp"

namespace megamoe::test {
namespace {

/// Scales and values that a layer takes: no NaN, and parts of routed and shared experts that are
/// about as large.
void make_finite(Tensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (tensor.dtype == Dtype::f8_e8m0) {
      const unsigned least = name.find("shared_experts") == std::string::npos ? 115 : 117;
      for (std::byte& scale : tensor.bytes) {
        scale = static_cast<std::byte>(least + std::to_integer<unsigned>(scale) % 6);
      }
    } else if (tensor.dtype == Dtype::f8_e4m3) {
      for (std::byte& value : tensor.bytes) value &= std::byte{0xbf};  // magnitudes below 2
    }
  }
}

CheckpointLayer mixed_layer() {
  Model model;
  make_deepseek_v4(model, kV4Fp4, fp8_exponents);
  make_finite(model.folder.tensors);
  CheckpointLayer layer = model.folder.load(1);
  layer.config.max_tokens = 32;
  return layer;
}

TEST(MixedFormats, DeepSeekV4RunsOnEveryExecutionAndRankCount) {
  CheckpointLayer checkpoint = mixed_layer();
  ASSERT_EQ(checkpoint.weights.shared[0].gate.format, WeightFormat::fp8);
  for (Recipe recipe : {Recipe::bf16_fp4, Recipe::fp8_fp4}) {
    checkpoint.config.recipe = recipe;
    const LayerConfig& config = checkpoint.config;
    for (int ranks : {1, 2}) {
      expect_no_errors(on_ranks(ranks, [&](int rank, const Group& group) {
        Layer layer(config, checkpoint.weights, group, {.workers = 2});
        Input input = cli::synthetic_input(config, 9, rank, 19);
        route(checkpoint.router, input.x, input.experts, input.weights);
        const auto expected = reference_forward(config, checkpoint.weights,
                                                reference_x(recipe, config.hidden, input.x),
                                                input.experts, input.weights);
        for (Execution execution : kExecutions) {
          EXPECT_LE(relative_l2(as_floats(run(layer, input, execution)), expected),
                    tolerance(recipe));
        }
      }));
    }
  }
}

TEST(MixedFormats, TheSharedExpertHasItsPartOfTheOutput) {
  const CheckpointLayer checkpoint = mixed_layer();
  const LayerConfig& config = checkpoint.config;
  const Input input = cli::synthetic_input(config, 9, 0, 19);
  Layer layer(config, checkpoint.weights, Group::single());
  LayerConfig routed = config;
  routed.shared_experts = 0;
  LayerWeights routed_weights = checkpoint.weights;
  routed_weights.shared.clear();
  Layer without(routed, routed_weights, Group::single());
  EXPECT_GT(relative_l2(as_floats(run(without, input)), as_floats(run(layer, input))), 0.05);
}

TEST(MixedFormats, PackedFilesKeepBothFormatsAndRefuseALayerWithOne) {
  const CheckpointLayer checkpoint = mixed_layer();
  const LayerConfig& config = checkpoint.config;
  const Input input = cli::synthetic_input(config, 9, 0, 19);
  const TemporaryFolder folder;
  Layer layer(config, checkpoint.weights, Group::single());
  layer.save_packed(folder / "packed");
  Layer again(config, folder / "packed", Group::single());
  EXPECT_EQ(difference(run(layer, input), run(again, input), config.hidden), "");
  LayerConfig other = config;
  other.shared_weights.reset();
  expect_error(ErrorCode::mismatch, {"shared in fp8", "pack the weights anew"},
               [&] { Layer(other, folder / "packed", Group::single()); });
}

TEST(MixedFormats, ALayerThatWantsTheSharedExpertAsTheRecipeIsRefusedByName) {
  CheckpointLayer checkpoint = mixed_layer();
  checkpoint.config.shared_weights.reset();
  expect_error(ErrorCode::unsupported, {"shared expert 0 gate is fp8", "fp4", "shared_weights"},
               [&] { Layer(checkpoint.config, checkpoint.weights, Group::single()); });
}

TEST(MixedFormats, RanksThatDisagreeOnTheFormatAreTold) {
  const CheckpointLayer checkpoint = mixed_layer();
  const auto messages = on_ranks(2, [&](int rank, const Group& group) {
    LayerConfig config = checkpoint.config;
    if (rank == 1) config.shared_weights = WeightFormat::bf16;
    Layer(config, checkpoint.weights, group);
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("shared_weights"), std::string::npos) << message;
  }
}

TEST(MixedFormats, MatricesOfOneSharedExpertInSeveralFormatsAreRefused) {
  Model model;
  make_deepseek_v4(model, kV4Fp4, fp8_exponents);
  const std::string base = "layers.1.ffn.shared_experts.w2";
  model.folder.tensors.erase(base + ".scale");
  bf16(model.folder.tensors, base, kHidden, kIntermediate);
  expect_error(ErrorCode::unsupported, {"shared_experts", "different formats"},
               [&] { model.folder.load(1); });
}

}  // namespace
}  // namespace megamoe::test
