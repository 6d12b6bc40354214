// Every quantisation that checkpoints come in, in models that the test writes: each number against
// the format's definition.
#include <cmath>
#include <functional>

#include "checkpoint/model_folder.hpp"
#include "checkpoint/synthetic_models.hpp"
#include "layout/weight_matrix.hpp"

namespace megamoe::test {
namespace {

std::string first_difference(const MatrixView& matrix, const Numbers& numbers) {
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      const double got = value_at(matrix, r, c);
      const double wanted = numbers(r, c);
      if (got == wanted || (std::isnan(got) && std::isnan(wanted))) continue;
      return "row " + std::to_string(r) + ", column " + std::to_string(c) + ": " +
             std::to_string(got) + ", wanted " + std::to_string(wanted);
    }
  }
  return "";
}

void expect_experts(const std::vector<ExpertWeights>& got, const std::vector<Expected>& wanted,
                    WeightFormat format) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t e = 0; e < got.size(); ++e) {
    SCOPED_TRACE(e);
    EXPECT_EQ(got[e].gate.format, format);
    ASSERT_EQ(got[e].gate.rows, kIntermediate);
    ASSERT_EQ(got[e].gate.columns, kHidden);
    ASSERT_EQ(got[e].up.rows, kIntermediate);
    ASSERT_EQ(got[e].down.rows, kHidden);
    ASSERT_EQ(got[e].down.columns, kIntermediate);
    EXPECT_EQ(first_difference(got[e].gate, wanted[e].gate), "") << "gate";
    EXPECT_EQ(first_difference(got[e].up, wanted[e].up), "") << "up";
    EXPECT_EQ(first_difference(got[e].down, wanted[e].down), "") << "down";
  }
}

void expect_loaded(const Model& model, Recipe recipe, WeightFormat format, std::int64_t layer = 0) {
  const CheckpointLayer loaded = model.folder.load(layer);
  EXPECT_EQ(loaded.config.recipe, recipe);
  EXPECT_FALSE(loaded.config.shared_weights);
  expect_experts(loaded.weights.experts, model.experts, format);
  expect_experts(loaded.weights.shared, model.shared, format);
}

TEST(Quantisations, Bf16IsKept) {
  Model model;
  make_mixtral(model, bf16);
  expect_loaded(model, Recipe::bf16_bf16, WeightFormat::bf16);
}

TEST(Quantisations, BlockFp8OfQwen3IsKeptAndItsInverseScaleMultiplies) {
  Model model;
  make_qwen3(model, fp8_inverse);
  expect_loaded(model, Recipe::bf16_fp8, WeightFormat::fp8);
}

TEST(Quantisations, CompressedMxfp4IsKeptInEveryNaming) {
  for (const auto& make :
       {std::function<void(Model&)>([](Model& m) { make_qwen3(m, kCompressedMxfp4); }),
        std::function<void(Model&)>([](Model& m) { make_mixtral(m, kCompressedMxfp4); }),
        std::function<void(Model&)>([](Model& m) { make_deepseek_v3(m, kCompressedMxfp4, 1); })}) {
    Model model;
    make(model);
    model.folder.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                                  {"format", "mxfp4-pack-quantized"}};
    expect_loaded(model, Recipe::bf16_fp4, WeightFormat::fp4);
  }
}

TEST(Quantisations, TheSecondScaleOfModeloptNvfp4Multiplies) {
  Model model;
  make_qwen3(model, modelopt);
  model.folder.config["quantization_config"] = {{"quant_method", "modelopt"},
                                                {"quant_algo", "NVFP4"}};
  expect_loaded(model, Recipe::bf16_bf16, WeightFormat::bf16);
}

TEST(Quantisations, TheGlobalScaleOfCompressedNvfp4Divides) {
  Model model;
  make_deepseek_v3(model, compressed_nvfp4, 1);
  model.folder.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                                {"format", "nvfp4-pack-quantized"}};
  expect_loaded(model, Recipe::bf16_bf16, WeightFormat::bf16);
}

TEST(Quantisations, DeepSeekV4KeepsFp4ExpertsAndAnFp8SharedOne) {
  Model model;
  make_deepseek_v4(model, kV4Fp4, fp8_exponents);
  const CheckpointLayer loaded = model.folder.load(1);
  EXPECT_EQ(loaded.family, "deepseek_v4");
  EXPECT_EQ(loaded.config.recipe, Recipe::bf16_fp4);
  EXPECT_EQ(loaded.config.shared_weights, WeightFormat::fp8);
  EXPECT_EQ(loaded.config.activation, Activation::swiglu);
  EXPECT_EQ(loaded.config.activation_limit, 10.0f);
  EXPECT_EQ(loaded.router.scores, RouterScores::sqrt_softplus);
  EXPECT_EQ(loaded.router.scaling, 1.5f);
  EXPECT_EQ(loaded.router.selection_bias, (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(loaded.router.renormalise);
  expect_experts(loaded.weights.experts, model.experts, WeightFormat::fp4);
  expect_experts(loaded.weights.shared, model.shared, WeightFormat::fp8);
}

TEST(Quantisations, DeepSeekV4WithFp8ExpertsIsKept) {
  Model model;
  make_deepseek_v4(model, fp8_exponents, fp8_exponents);
  expect_loaded(model, Recipe::bf16_fp8, WeightFormat::fp8, 1);
}

TEST(Quantisations, OnlyTheLayersOfDeepSeekV4ThatLookExpertsUpByTokenIdAreRefused) {
  Model model;
  make_deepseek_v4(model, kV4Fp4, fp8_exponents);
  expect_error(ErrorCode::unsupported, {"layers.0.ffn.gate.tid2eid", "token id"},
               [&] { model.folder.load(0); });
  EXPECT_EQ(model.folder.load(1).weights.experts.size(), 3u);
  model.folder.config["num_hash_layers"] = 2;
  expect_error(ErrorCode::unsupported, {"layers.1.ffn.gate.tid2eid"},
               [&] { model.folder.load(1); });
  model.folder.config["num_hash_layers"] = 0;
  expect_error(ErrorCode::unsupported, {"layers.0.ffn.gate.tid2eid"},
               [&] { model.folder.load(0); });
}

TEST(Quantisations, DeepSeekV4SaysItsLimitAndHasItsOwnScores) {
  Model model;
  make_deepseek_v4(model, kV4Fp4, fp8_exponents);
  nlohmann::json& config = model.folder.config;
  config["swiglu_limit"] = 0;
  EXPECT_FALSE(model.folder.load(1).config.activation_limit);
  config["swiglu_limit"] = -10;
  expect_error(ErrorCode::format, {"swiglu_limit"}, [&] { model.folder.load(1); });
  config.erase("swiglu_limit");
  expect_error(ErrorCode::format, {"swiglu_limit"}, [&] { model.folder.load(1); });
  config["swiglu_limit"] = 10;
  config["scoring_func"] = "sigmoid";
  expect_error(ErrorCode::unsupported, {"scoring_func", "'sqrtsoftplus'"},
               [&] { model.folder.load(1); });
}

TEST(Quantisations, SeveralSharedExpertsAreSlicesOfOneMlp) {
  for (const Encoding& encode : {Encoding(bf16), kCompressedMxfp4}) {
    Model model;
    make_deepseek_v3(model, encode, 3);
    const CheckpointLayer loaded = model.folder.load();
    EXPECT_EQ(loaded.config.shared_experts, 3);
    expect_experts(loaded.weights.shared, model.shared, loaded.weights.experts[0].gate.format);
  }
}

TEST(Quantisations, RowsOfGptOssAreInterleavedGateFirst) {
  const ModelFolder model("gpt_oss");
  const CheckpointLayer layer = model.load();
  const std::string prefix = "model.layers.0.mlp.experts.gate_up_proj_";
  const Tensor& blocks = model.tensors.at(prefix + "blocks");
  const Tensor& scales = model.tensors.at(prefix + "scales");
  const auto& bias = model.tensors.at(prefix + "bias");
  const auto groups = static_cast<std::size_t>(layer.config.hidden / 32);
  for (std::size_t e = 0; e < 8; ++e) {
    for (std::size_t row = 0; row < 256; ++row) {
      const ExpertWeights& expert = layer.weights.experts[e];
      const MatrixView& matrix = row % 2 == 0 ? expert.gate : expert.up;
      const std::size_t at = e * 256 + row;
      for (std::size_t c = 0; c < 32 * groups; ++c) {
        const std::size_t group = at * groups + c / 32;
        const auto pair = std::to_integer<unsigned>(blocks.bytes[group * 16 + c % 32 / 2]);
        const double wanted = e2m1(c % 2 == 0 ? pair & 15 : pair >> 4) *
                              ue8m0(std::to_integer<unsigned>(scales.bytes[group]));
        ASSERT_EQ(
            value_at(matrix, static_cast<std::int64_t>(row / 2), static_cast<std::int64_t>(c)),
            wanted)
            << "expert " << e << ", row " << row << ", column " << c;
      }
      BFloat16 bits;
      std::memcpy(&bits, bias.bytes.data() + 2 * at, sizeof bits);
      ASSERT_EQ((row % 2 == 0 ? expert.gate_bias : expert.up_bias)[row / 2], to_float(bits));
    }
  }
}

TEST(Quantisations, MissingScalesOfEveryFormatAreNamed) {
  const auto missing = [](const std::function<void(Model&)>& make, const std::string& tensor,
                          std::int64_t layer) {
    Model model;
    make(model);
    ASSERT_EQ(model.folder.tensors.erase(tensor), 1u) << tensor;
    expect_error(ErrorCode::format, {tensor}, [&] { model.folder.load(layer); });
  };
  const std::string qwen3 = "model.layers.0.mlp.experts.1.up_proj";
  missing([](Model& m) { make_qwen3(m, fp8_inverse); }, qwen3 + ".weight_scale_inv", 0);
  missing([](Model& m) { make_qwen3(m, kCompressedMxfp4); }, qwen3 + ".weight_scale", 0);
  missing([](Model& m) { make_qwen3(m, modelopt); }, qwen3 + ".weight_scale", 0);
  missing([](Model& m) { make_qwen3(m, modelopt); }, qwen3 + ".weight_scale_2", 0);
  missing([](Model& m) { make_qwen3(m, compressed_nvfp4); }, qwen3 + ".weight_scale", 0);
  missing([](Model& m) { make_deepseek_v4(m, kV4Fp4, fp8_exponents); },
          "layers.1.ffn.experts.2.w2.scale", 1);
}

TEST(Quantisations, ACompressedNvfp4WithoutItsGlobalScaleIsNotTakenForMxfp4) {
  Model model;
  make_qwen3(model, compressed_nvfp4);
  const std::string base = "model.layers.0.mlp.experts.1.up_proj";
  model.folder.tensors.erase(base + ".weight_global_scale");
  expect_error(ErrorCode::format, {base + ".weight_scale"}, [&] { model.folder.load(); });
}

TEST(Quantisations, SecondScalesThatAreNoPositiveNumbersAreRefused) {
  const std::string name = "model.layers.0.mlp.experts.1.up_proj.weight_global_scale";
  for (const float scale : {0.0f, -1.0f, INFINITY, NAN}) {
    Model model;
    make_qwen3(model, compressed_nvfp4);
    model.folder.tensors.at(name) = make_tensor<float>(Dtype::f32, {1}, {scale});
    expect_error(ErrorCode::format, {"experts.1.up_proj"}, [&] { model.folder.load(); });
  }
  Model model;
  make_qwen3(model, compressed_nvfp4);
  model.folder.tensors.at(name) = make_tensor<float>(Dtype::f32, {2}, {1, 1});
  expect_error(ErrorCode::format, {name, "one F32"}, [&] { model.folder.load(); });
  model.folder.tensors.at(name) = make_tensor<std::int32_t>(Dtype::i32, {1}, {1});
  expect_error(ErrorCode::format, {name, "one F32"}, [&] { model.folder.load(); });
}

TEST(Quantisations, AScaleByteOf255IsFoundBeforeItRuns) {
  Model model;
  make_qwen3(model, kCompressedMxfp4);
  const CheckpointLayer layer = model.folder.load();
  // mxfp4() stores 255 as the second scale of row 0.
  expect_error(ErrorCode::format, {"the gate", "scale", "row 0, column 32"},
               [&] { check_finite(layer.weights.experts[0].gate, "the gate"); });
}

}  // namespace
}  // namespace megamoe::test
