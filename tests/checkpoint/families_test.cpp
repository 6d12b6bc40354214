// The loaders and routers of the families against outputs of an independent implementation, through
// a plain f64 evaluation that shares nothing with the engines but the decoding of weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "megamoe/router.hpp"

#include "base/names.hpp"
#include "checkpoint/model_folder.hpp"
#include "layout/weight_matrix.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::test {
namespace {

using Row = std::vector<double>;

Row multiply(const MatrixView& matrix, const std::vector<float>& bias, const Row& x) {
  Row y;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    double sum = bias.empty() ? 0.0 : bias[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      sum += value_at(matrix, r, c) * x[static_cast<std::size_t>(c)];
    }
    y.push_back(sum);
  }
  return y;
}

/// The formulas of the model families, written out.
double activated(const LayerConfig& config, double gate, double up) {
  if (config.activation_limit) {
    const double limit = *config.activation_limit;
    gate = std::min(gate, limit);
    up = std::max(-limit, std::min(up, limit));
  }
  if (config.activation == Activation::swiglu) return gate / (1 + std::exp(-gate)) * up;
  return gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
}

void add_expert(const LayerConfig& config, const ExpertWeights& expert, const Row& x, double weight,
                Row& y) {
  const Row gate = multiply(expert.gate, expert.gate_bias, x);
  const Row up = multiply(expert.up, expert.up_bias, x);
  Row middle;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    middle.push_back(activated(config, gate[i], up[i]));
  }
  const Row out = multiply(expert.down, expert.down_bias, middle);
  for (std::size_t h = 0; h < y.size(); ++h) y[h] += weight * out[h];
}

enum class Parts { all, shared };

std::vector<double> evaluate(const CheckpointLayer& layer, const std::vector<BFloat16>& x,
                             Parts parts) {
  const auto hidden = static_cast<std::size_t>(layer.config.hidden);
  const auto slots = static_cast<std::size_t>(layer.config.top_k);
  const std::size_t tokens = x.size() / hidden;
  std::vector<std::int64_t> ids(tokens * slots);
  std::vector<float> weights(tokens * slots);
  route(layer.router, x, ids, weights);
  std::vector<double> all;
  for (std::size_t t = 0; t < tokens; ++t) {
    Row row;
    for (std::size_t h = 0; h < hidden; ++h) row.push_back(to_float(x[t * hidden + h]));
    Row y(hidden, 0.0);
    for (std::size_t s = 0; s < slots && parts == Parts::all; ++s) {
      const auto expert = static_cast<std::size_t>(ids[t * slots + s]);
      add_expert(layer.config, layer.weights.experts[expert], row, weights[t * slots + s], y);
    }
    for (const ExpertWeights& expert : layer.weights.shared) {
      add_expert(layer.config, expert, row, 1.0, y);
    }
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

template <class T>
std::vector<T> read(const SafetensorsFile& file, const char* name) {
  const TensorView& tensor = file.tensor(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

double distance(const std::vector<double>& got, const std::vector<float>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    length += double{wanted[i]} * wanted[i];
  }
  return std::sqrt(difference / length);
}

// The other implementation sums in f32: some 1e-7 each. The contract's 5e-3 pays for bf16 roundings
// that neither side makes here, and would hide a wrong scale in one expert's last block.
constexpr double kMost = 1e-5;

std::string fixture(const std::string& name) {
  return std::string(MEGAMOE_FIXTURES) + "/" + name;
}

/// How far the layer of a fixture is from what the other implementation made of it.
double distance_of_fixture(const std::string& name, Parts parts, const char* output) {
  const SafetensorsFile expected(fixture(name) + "/expected.safetensors");
  const CheckpointLayer layer = load_layer(fixture(name), 0);
  const auto x = read<BFloat16>(expected, "hidden_states");
  return distance(evaluate(layer, x, parts), read<float>(expected, output));
}

class Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Families, TheLayerGivesTheOutputOfTheIndependentImplementation) {
  EXPECT_LE(distance_of_fixture(GetParam(), Parts::all, "output"), kMost);
}

/// All numbers that a layer means, so that equal layers compare equal wherever their bytes lie.
std::vector<double> numbers(const CheckpointLayer& layer) {
  std::vector<double> all(layer.router.weight.begin(), layer.router.weight.end());
  for (const auto* values : {&layer.router.bias, &layer.router.selection_bias}) {
    all.insert(all.end(), values->begin(), values->end());
  }
  for (const auto* experts : {&layer.weights.experts, &layer.weights.shared}) {
    for (const ExpertWeights& expert : *experts) {
      for (const MatrixView* matrix : {&expert.gate, &expert.up, &expert.down}) {
        for (std::int64_t i = 0; i < matrix->rows * matrix->columns; ++i) {
          all.push_back(value_at(*matrix, i / matrix->columns, i % matrix->columns));
        }
      }
      for (const auto* bias : {&expert.gate_bias, &expert.up_bias, &expert.down_bias}) {
        all.insert(all.end(), bias->begin(), bias->end());
      }
    }
  }
  return all;
}

TEST_P(Families, ThreeShardsHoldTheSameLayerAsOneFile) {
  const ModelFolder model{GetParam()};
  model.write_shards(3);
  EXPECT_EQ(numbers(load_layer(model.folder().path(), 0)),
            numbers(load_layer(fixture(GetParam()), 0)));
}

TEST_P(Families, TheWeightsOutliveTheLoaderAndTheFolder) {
  std::vector<double> wanted = numbers(load_layer(fixture(GetParam()), 0));
  CheckpointLayer layer;
  {
    const ModelFolder model{GetParam()};
    layer = model.load();
  }
  EXPECT_EQ(numbers(layer), wanted);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Families,
                         ::testing::Values("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

/// The family and the sizes that a checkpoint says, as one line.
std::string description(const CheckpointLayer& layer) {
  const LayerConfig& config = layer.config;
  return fmt::format("{}: H {} I {} E {}+{} k {}, {}, {}", layer.family, config.hidden,
                     config.intermediate, config.experts, config.shared_experts, config.top_k,
                     name_of(config.recipe), name_of(config.activation));
}

TEST(FamilyShapes, MixtralIsBf16RoutedBySoftmax) {
  const CheckpointLayer layer = load_layer(fixture("mixtral"), 0);
  EXPECT_EQ(description(layer), "mixtral: H 128 I 160 E 4+0 k 2, bf16_bf16, swiglu");
  EXPECT_EQ(layer.config.max_tokens, 0);
  EXPECT_FALSE(layer.config.activation_limit);
  EXPECT_EQ(layer.router.scores, RouterScores::softmax);
  EXPECT_TRUE(layer.router.renormalise);
  ASSERT_EQ(layer.weights.experts.size(), 4u);
  EXPECT_EQ(layer.weights.experts[3].gate.rows, 160);
  EXPECT_EQ(layer.weights.experts[3].down.rows, 128);
  EXPECT_EQ(layer.weights.experts[3].down.columns, 160);
}

TEST(FamilyShapes, Qwen3TakesTheIntermediateSizeOfItsExpertsNotOfItsDenseLayers) {
  EXPECT_EQ(description(load_layer(fixture("qwen3_moe"), 0)),
            "qwen3_moe: H 160 I 96 E 12+0 k 4, bf16_bf16, swiglu");
}

TEST(FamilyShapes, GptOssHasBiasesAndItsOwnActivation) {
  const CheckpointLayer layer = load_layer(fixture("gpt_oss"), 0);
  EXPECT_EQ(description(layer), "gpt_oss: H 160 I 128 E 8+0 k 4, bf16_fp4, swiglu_oai");
  EXPECT_EQ(layer.config.activation_limit, 7.0f);
  EXPECT_EQ(layer.router.bias.size(), 8u);
  ASSERT_EQ(layer.weights.experts.size(), 8u);
  EXPECT_EQ(layer.weights.experts[7].gate_bias.size(), 128u);
  EXPECT_EQ(layer.weights.experts[7].up_bias.size(), 128u);
  EXPECT_EQ(layer.weights.experts[7].down_bias.size(), 160u);
}

TEST(FamilyShapes, DeepSeekV3HasASharedExpertAndGroups) {
  const CheckpointLayer layer = load_layer(fixture("deepseek_v3"), 0);
  EXPECT_EQ(description(layer), "deepseek_v3: H 192 I 144 E 16+1 k 4, bf16_fp8, swiglu");
  EXPECT_EQ(layer.router.scores, RouterScores::sigmoid);
  EXPECT_EQ(layer.router.groups, 4);
  EXPECT_EQ(layer.router.top_groups, 2);
  EXPECT_EQ(layer.router.scaling, 2.5f);
  EXPECT_EQ(layer.router.selection_bias.size(), 16u);
  EXPECT_EQ(layer.weights.shared.size(), 1u);
}

TEST(FamilyShapes, TheSharedExpertOfDeepSeekV3AloneGivesItsPartOfTheOutput) {
  EXPECT_LE(distance_of_fixture("deepseek_v3", Parts::shared, "shared_output"), kMost);
}

TEST(FamilyShapes, ALimitInTheConfigurationOfGptOssReplacesItsDefault) {
  ModelFolder model("gpt_oss");
  model.config["swiglu_limit"] = 5.5;
  EXPECT_EQ(model.load().config.activation_limit, 5.5f);
}

}  // namespace
}  // namespace megamoe::test
