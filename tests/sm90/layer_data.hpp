// Layers and batches of recipe fp8_fp4 for the GPU tests and the benches: fixed seeds, scales over
// many binades.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "megamoe/weights.hpp"

#include "numerics/block_scale.hpp"

namespace megamoe::test {

using Random = std::mt19937;

/// Memory of one FP4 matrix.
struct Fp4Data {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
};

/// Random codes; scales from `lowest` to `lowest + binades - 1`.
inline MatrixView random_fp4(Random& random, std::int64_t rows, std::int64_t columns, int lowest,
                             int binades, Fp4Data& data) {
  data.values.resize(static_cast<std::size_t>(rows * columns / 2));
  data.scales.resize(static_cast<std::size_t>(rows * columns / 32));
  for (std::byte& b : data.values) b = static_cast<std::byte>(random());
  for (std::byte& b : data.scales) {
    b = static_cast<std::byte>(lowest +
                               static_cast<int>(random() % static_cast<unsigned>(binades)));
  }
  return {WeightFormat::fp4,  rows,        columns, data.values.data(), columns / 2,
          data.scales.data(), columns / 32};
}

struct LayerData {
  std::vector<std::unique_ptr<Fp4Data>> memory;
  LayerWeights weights;
};

struct LayerDataOptions {
  std::int64_t distinct_experts = 1 << 20;  ///< more experts than this share memory
  int lowest_scale = 116;
  int binades = 8;
  enum class Bias { none, random } bias = Bias::none;
};

inline std::vector<float> random_bias(Random& random, std::int64_t rows) {
  std::normal_distribution<float> normal;
  std::vector<float> bias(static_cast<std::size_t>(rows));
  for (float& b : bias) b = normal(random);
  return bias;
}

inline LayerData make_layer_data(const LayerConfig& config, unsigned seed,
                                 const LayerDataOptions& options = {}) {
  Random random(seed);
  LayerData data;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    data.memory.push_back(std::make_unique<Fp4Data>());
    return random_fp4(random, rows, columns, options.lowest_scale, options.binades,
                      *data.memory.back());
  };
  const auto expert_data = [&] {
    ExpertWeights expert;
    expert.gate = matrix(config.intermediate, config.hidden);
    expert.up = matrix(config.intermediate, config.hidden);
    expert.down = matrix(config.hidden, config.intermediate);
    if (options.bias == LayerDataOptions::Bias::random) {
      expert.gate_bias = random_bias(random, config.intermediate);
      expert.up_bias = random_bias(random, config.intermediate);
      expert.down_bias = random_bias(random, config.hidden);
    }
    return expert;
  };
  for (std::int64_t e = 0; e < config.experts; ++e) {
    if (e >= options.distinct_experts) {
      data.weights.experts.push_back(
          data.weights.experts[static_cast<std::size_t>(e % options.distinct_experts)]);
      continue;
    }
    data.weights.experts.push_back(expert_data());
  }
  for (std::int64_t s = 0; s < config.shared_experts; ++s) {
    data.weights.shared.push_back(expert_data());
  }
  return data;
}

/// What one rank brings to a call.
struct BatchData {
  std::int64_t tokens = 0;
  std::vector<std::byte> x;
  std::vector<std::byte> x_scales;
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
};

/// x normal, quantised per 32 with a different size for each group; distinct random experts.
inline BatchData make_batch_data(const LayerConfig& config, std::int64_t tokens, unsigned seed) {
  Random random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  BatchData batch;
  batch.tokens = tokens;
  const std::int64_t groups = config.hidden / 32;
  batch.x.resize(static_cast<std::size_t>(tokens * config.hidden));
  batch.x_scales.resize(static_cast<std::size_t>(tokens * groups));
  for (std::int64_t g = 0; g < tokens * groups; ++g) {
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 4) - 2);
    float values[32];
    for (float& v : values) v = normal(random) * size;
    std::uint8_t scale = 0;
    quantise_e4m3_group(values, 32, reinterpret_cast<std::uint8_t*>(&batch.x[g * 32]), scale);
    batch.x_scales[static_cast<std::size_t>(g)] = static_cast<std::byte>(scale);
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(config.experts));
  for (std::size_t e = 0; e < ids.size(); ++e) ids[e] = static_cast<std::int64_t>(e);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t s = 0; s < config.top_k; ++s) {
      std::swap(ids[static_cast<std::size_t>(s)],
                ids[static_cast<std::size_t>(s) + random() % (ids.size() - s)]);
      batch.experts.push_back(ids[static_cast<std::size_t>(s)]);
      batch.weights.push_back(uniform(random));
    }
  }
  return batch;
}

}  // namespace megamoe::test
