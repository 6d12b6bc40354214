// Layers and batches of recipes fp8_fp4 and fp8_fp8 for the GPU tests and the benches: fixed seeds,
// scales over many binades.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "megamoe/weights.hpp"

#include "numerics/block_scale.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::test {

using Random = std::mt19937;

/// Memory of one matrix.
struct MatrixData {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
};

/// Random codes; scales from `lowest` to `lowest + binades - 1`.
inline MatrixView random_fp4(Random& random, std::int64_t rows, std::int64_t columns, int lowest,
                             int binades, MatrixData& data) {
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

/// Random bytes below 2 in magnitude; a random f32 scale for each 128 x 128, over four binades.
inline MatrixView random_fp8(Random& random, std::int64_t rows, std::int64_t columns,
                             MatrixData& data) {
  data.values.resize(static_cast<std::size_t>(rows * columns));
  for (std::byte& b : data.values) b = static_cast<std::byte>(random() & 0xBFu);
  const std::int64_t in_row = (columns + 127) / 128;
  std::uniform_real_distribution<float> uniform(0.01f, 0.02f);
  std::vector<float> scales(static_cast<std::size_t>((rows + 127) / 128 * in_row));
  for (float& s : scales) s = std::ldexp(uniform(random), static_cast<int>(random() % 4));
  data.scales.resize(scales.size() * 4);
  std::memcpy(data.scales.data(), scales.data(), data.scales.size());
  return {WeightFormat::fp8,  rows,      columns, data.values.data(), columns,
          data.scales.data(), in_row * 4};
}

struct LayerData {
  std::vector<std::unique_ptr<MatrixData>> memory;
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
    data.memory.push_back(std::make_unique<MatrixData>());
    if (config.recipe == Recipe::fp8_fp8) {
      return random_fp8(random, rows, columns, *data.memory.back());
    }
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

/// x normal, quantised with a different size for each group; distinct random experts.
inline BatchData make_batch_data(const LayerConfig& config, std::int64_t tokens, unsigned seed) {
  Random random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  BatchData batch;
  batch.tokens = tokens;
  const bool f32_scales = x_format(config.recipe) == XFormat::e4m3_f32_128;
  const std::int64_t group = f32_scales ? 128 : 32;
  const std::int64_t row_bytes = x_scale_row_bytes(config.recipe, config.hidden);
  batch.x.resize(static_cast<std::size_t>(tokens * config.hidden));
  batch.x_scales.resize(static_cast<std::size_t>(tokens * row_bytes));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t first = 0; first < config.hidden; first += group) {
      const std::int64_t count = std::min(group, config.hidden - first);
      const float size = std::ldexp(1.0f, static_cast<int>(random() % 4) - 2);
      float values[128];
      for (std::int64_t i = 0; i < count; ++i) values[i] = normal(random) * size;
      auto* bytes = reinterpret_cast<std::uint8_t*>(&batch.x[t * config.hidden + first]);
      std::byte* scales = &batch.x_scales[t * row_bytes];
      if (f32_scales) {
        float scale = 0;
        quantise_e4m3_group_f32(values, count, bytes, scale);
        std::memcpy(scales + first / group * 4, &scale, 4);
      } else {
        std::uint8_t scale = 0;
        quantise_e4m3_group(values, count, bytes, scale);
        scales[first / group] = static_cast<std::byte>(scale);
      }
    }
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
