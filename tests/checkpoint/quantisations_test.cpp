// Every quantisation that checkpoints come in, in models that the test writes: each number against
// the format's definition, decoded here by hand.
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "checkpoint/model_folder.hpp"
#include "layout/weight_matrix.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::test {
namespace {

double e2m1(unsigned nibble) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (nibble & 8) != 0 ? -kValues[nibble & 7] : kValues[nibble & 7];
}

double e4m3(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15);
  const int mantissa = static_cast<int>(byte & 7);
  if ((byte & 0x7f) == 0x7f) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

double ue8m0(unsigned byte) {
  return byte == 255 ? NAN : std::ldexp(1.0, static_cast<int>(byte) - 127);
}

/// Adds tensors of a linear layer [rows, columns] and gives back what its numbers are.
using Numbers = std::function<double(std::int64_t row, std::int64_t column)>;
using Encoding = std::function<Numbers(Tensors&, const std::string& base, std::int64_t rows,
                                       std::int64_t columns)>;

class Bytes {
 public:
  Bytes(std::int64_t rows, std::int64_t columns, unsigned most, std::uint64_t seed)
      : columns_(columns) {
    std::mt19937_64 random(seed);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      values_.push_back(static_cast<std::uint8_t>(random() % (most + 1)));
    }
  }
  unsigned at(std::int64_t row, std::int64_t column) const {
    return values_[static_cast<std::size_t>(row * columns_ + column)];
  }
  std::uint8_t& operator[](std::size_t i) { return values_[i]; }
  const std::vector<std::uint8_t>& all() const { return values_; }

 private:
  std::int64_t columns_;
  std::vector<std::uint8_t> values_;
};

std::uint64_t seed_of(const std::string& base) {
  std::uint64_t seed = 17;
  for (char c : base) seed = seed * 131 + static_cast<unsigned char>(c);
  return seed;
}

unsigned nibble(const Bytes& packed, std::int64_t row, std::int64_t column) {
  const unsigned pair = packed.at(row, column / 2);
  return column % 2 == 0 ? pair & 15 : pair >> 4;  // the even element is the low one
}

/// E2M1 with UE8M0 per 32, the names and types as given. Scales take every byte there is.
Encoding mxfp4(const char* values, Dtype value_type, const char* scales, Dtype scale_type) {
  return [=](Tensors& tensors, const std::string& base, std::int64_t rows, std::int64_t columns) {
    const Bytes packed(rows, columns / 2, 255, seed_of(base));
    Bytes scale(rows, columns / 32, 255, seed_of(base) + 1);
    scale[0] = 0;
    scale[1] = 255;
    tensors[base + values] = make_tensor(value_type, {rows, columns / 2}, packed.all());
    tensors[base + scales] = make_tensor(scale_type, {rows, columns / 32}, scale.all());
    return [=](std::int64_t r, std::int64_t c) {
      return e2m1(nibble(packed, r, c)) * ue8m0(scale.at(r, c / 32));
    };
  };
}

Numbers fp8_inverse(Tensors& tensors, const std::string& base, std::int64_t rows,
                    std::int64_t columns) {
  const std::int64_t down = (rows + 127) / 128;
  const std::int64_t across = (columns + 127) / 128;
  const Bytes bytes(rows, columns, 255, seed_of(base));
  std::vector<float> scales;
  for (std::int64_t i = 0; i < down * across; ++i)
    scales.push_back(0.37f * static_cast<float>(i + 1));
  tensors[base + ".weight"] = make_tensor(Dtype::f8_e4m3, {rows, columns}, bytes.all());
  tensors[base + ".weight_scale_inv"] = make_tensor(Dtype::f32, {down, across}, scales);
  return [=](std::int64_t r, std::int64_t c) {
    return e4m3(bytes.at(r, c)) * scales[static_cast<std::size_t>(r / 128 * across + c / 128)];
  };
}

Numbers fp8_exponents(Tensors& tensors, const std::string& base, std::int64_t rows,
                      std::int64_t columns) {
  const std::int64_t down = (rows + 127) / 128;
  const std::int64_t across = (columns + 127) / 128;
  const Bytes bytes(rows, columns, 255, seed_of(base));
  Bytes scales(down, across, 254, seed_of(base) + 1);
  scales[0] = 0;
  tensors[base + ".weight"] = make_tensor(Dtype::f8_e4m3, {rows, columns}, bytes.all());
  tensors[base + ".scale"] = make_tensor(Dtype::f8_e8m0, {down, across}, scales.all());
  return [=](std::int64_t r, std::int64_t c) {
    return e4m3(bytes.at(r, c)) * ue8m0(scales.at(r / 128, c / 128));
  };
}

double as_bf16(double value) {
  return to_float(to_bf16(static_cast<float>(value)));
}

Numbers nvfp4(Tensors& tensors, const std::string& base, const std::string& values,
              std::int64_t rows, std::int64_t columns, double factor) {
  const Bytes packed(rows, columns / 2, 255, seed_of(base));
  const Bytes scale(rows, columns / 16, 0x7e, seed_of(base) + 1);
  tensors[base + values] = make_tensor(Dtype::u8, {rows, columns / 2}, packed.all());
  tensors[base + ".weight_scale"] = make_tensor(Dtype::f8_e4m3, {rows, columns / 16}, scale.all());
  return [=](std::int64_t r, std::int64_t c) {
    return as_bf16(e2m1(nibble(packed, r, c)) * e4m3(scale.at(r, c / 16)) * factor);
  };
}

constexpr float kSecond = 0.0123f;

Numbers modelopt(Tensors& tensors, const std::string& base, std::int64_t rows,
                 std::int64_t columns) {
  tensors[base + ".weight_scale_2"] = make_tensor<float>(Dtype::f32, {}, {kSecond});
  return nvfp4(tensors, base, ".weight", rows, columns, kSecond);
}

Numbers compressed_nvfp4(Tensors& tensors, const std::string& base, std::int64_t rows,
                         std::int64_t columns) {
  tensors[base + ".weight_global_scale"] = make_tensor<float>(Dtype::f32, {1}, {kSecond});
  return nvfp4(tensors, base, ".weight_packed", rows, columns, 1.0 / kSecond);
}

Numbers bf16(Tensors& tensors, const std::string& base, std::int64_t rows, std::int64_t columns) {
  std::mt19937_64 random(seed_of(base));
  std::vector<std::uint16_t> bits;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    bits.push_back(static_cast<std::uint16_t>(random() % 0x7f80));
  }
  tensors[base + ".weight"] = make_tensor(Dtype::bf16, {rows, columns}, bits);
  return [=](std::int64_t r, std::int64_t c) {
    const unsigned value = bits[static_cast<std::size_t>(r * columns + c)];
    const int exponent = static_cast<int>(value >> 7);
    return exponent == 0 ? std::ldexp(value & 127, -133)
                         : std::ldexp(128 + (value & 127), exponent - 134);
  };
}

constexpr std::int64_t kHidden = 192;
constexpr std::int64_t kIntermediate = 160;
constexpr std::int64_t kExperts = 3;

struct Expected {
  Numbers gate;
  Numbers up;
  Numbers down;
};

/// A model of one layer, and what its experts are to be.
struct Model {
  ModelFolder folder;
  std::vector<Expected> experts;
  std::vector<Expected> shared;
};

void add_router(Model& model, const std::string& name) {
  model.folder.tensors[name] =
      make_tensor(Dtype::f32, {kExperts, kHidden},
                  std::vector<float>(static_cast<std::size_t>(kExperts * kHidden)));
}

/// Names of an expert's three linear layers in the order gate, up, down.
using Names = std::vector<std::string>;
const Names kLong = {"gate_proj", "up_proj", "down_proj"};
const Names kShort = {"w1", "w3", "w2"};

Expected add_expert(Tensors& tensors, const std::string& base, const Names& names,
                    const Encoding& encode, std::int64_t intermediate) {
  return {encode(tensors, base + names[0], intermediate, kHidden),
          encode(tensors, base + names[1], intermediate, kHidden),
          encode(tensors, base + names[2], kHidden, intermediate)};
}

void make_experts(Model& model, const std::string& prefix, const Names& names,
                  const Encoding& encode) {
  for (std::int64_t e = 0; e < kExperts; ++e) {
    model.experts.push_back(add_expert(model.folder.tensors, prefix + std::to_string(e) + ".",
                                       names, encode, kIntermediate));
  }
}

void make_qwen3(Model& model, const Encoding& encode) {
  model.folder.config = {{"model_type", "qwen3_moe"}, {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},    {"moe_intermediate_size", kIntermediate},
                         {"num_experts", kExperts},   {"num_experts_per_tok", 2},
                         {"norm_topk_prob", true}};
  add_router(model, "model.layers.0.mlp.gate.weight");
  make_experts(model, "model.layers.0.mlp.experts.", kLong, encode);
}

void make_mixtral(Model& model, const Encoding& encode) {
  model.folder.config = {{"model_type", "mixtral"},       {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},        {"intermediate_size", kIntermediate},
                         {"num_local_experts", kExperts}, {"num_experts_per_tok", 2}};
  add_router(model, "model.layers.0.block_sparse_moe.gate.weight");
  make_experts(model, "model.layers.0.block_sparse_moe.experts.", kShort, encode);
}

/// Shared experts stand side by side in one MLP.
void make_deepseek_v3(Model& model, const Encoding& encode, std::int64_t shared) {
  model.folder.config = {{"model_type", "deepseek_v3"},
                         {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},
                         {"moe_intermediate_size", kIntermediate},
                         {"n_routed_experts", kExperts},
                         {"n_shared_experts", shared},
                         {"num_experts_per_tok", 2},
                         {"norm_topk_prob", true},
                         {"routed_scaling_factor", 2.5},
                         {"n_group", 1},
                         {"topk_group", 1}};
  const std::string prefix = "model.layers.0.mlp.";
  add_router(model, prefix + "gate.weight");
  model.folder.tensors[prefix + "gate.e_score_correction_bias"] =
      make_tensor<float>(Dtype::f32, {kExperts}, {1, 2, 3});
  make_experts(model, prefix + "experts.", kLong, encode);
  const Expected all = add_expert(model.folder.tensors, prefix + "shared_experts.", kLong, encode,
                                  shared * kIntermediate);
  for (std::int64_t s = 0; s < shared; ++s) {
    const std::int64_t first = s * kIntermediate;
    model.shared.push_back(
        {[=](std::int64_t r, std::int64_t c) { return all.gate(first + r, c); },
         [=](std::int64_t r, std::int64_t c) { return all.up(first + r, c); },
         [=](std::int64_t r, std::int64_t c) { return all.down(r, first + c); }});
  }
}

void make_deepseek_v4(Model& model, const Encoding& routed, const Encoding& shared) {
  model.folder.config = {
      {"model_type", "deepseek_v4"},
      {"num_hidden_layers", 2},
      {"hidden_size", kHidden},
      {"moe_intermediate_size", kIntermediate},
      {"n_routed_experts", kExperts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", 2},
      {"routed_scaling_factor", 1.5},
      {"scoring_func", "sqrtsoftplus"},
      {"num_hash_layers", 1},
      {"swiglu_limit", 10.0},
      {"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}};
  add_router(model, "layers.1.ffn.gate.weight");
  model.folder.tensors["layers.1.ffn.gate.bias"] =
      make_tensor<float>(Dtype::f32, {kExperts}, {1, 2, 3});
  model.folder.tensors["layers.0.ffn.gate.tid2eid"] =
      make_tensor<std::int32_t>(Dtype::i32, {2, 2}, {0, 1, 1, 2});
  make_experts(model, "layers.1.ffn.experts.", kShort, routed);
  model.shared.push_back(add_expert(model.folder.tensors, "layers.1.ffn.shared_experts.", kShort,
                                    shared, kIntermediate));
}

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

const Encoding kCompressedMxfp4 = mxfp4(".weight_packed", Dtype::u8, ".weight_scale", Dtype::u8);
const Encoding kV4Fp4 = mxfp4(".weight", Dtype::i8, ".scale", Dtype::f8_e8m0);

void expect_loaded(const Model& model, Recipe recipe, WeightFormat format, std::int64_t layer = 0) {
  const CheckpointLayer loaded = model.folder.load(layer);
  EXPECT_EQ(loaded.config.recipe, recipe);
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
