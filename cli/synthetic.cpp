#include "cli/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/integers.hpp"
#include "numerics/bf16.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::cli {
namespace {

/// splitmix64: a stream of 64-bit numbers from any seed, equal everywhere (the standard
/// distributions are not).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : state_(seed * 0x9e3779b97f4a7c15u + stream) {
    bits();
  }
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// The sum of twelve uniforms, less their mean: near enough to normal, and free of library
  /// functions.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

/// Owns what the views of a synthetic layer show.
struct Storage {
  std::vector<std::unique_ptr<std::vector<std::byte>>> pieces;
  std::byte* add(std::int64_t bytes) {
    pieces.push_back(std::make_unique<std::vector<std::byte>>(static_cast<std::size_t>(bytes)));
    return pieces.back()->data();
  }
};

// Scales spread over eight binades, round 2^-3 / sqrt(columns) for values up to 6 or so: results
// stay near one.
int scale_exponent(std::int64_t columns, Random& random) {
  return static_cast<int>(random.below(8)) - 6 -
         static_cast<int>(std::lround(std::log2(static_cast<double>(columns)) / 2));
}

MatrixView make_fp4(std::int64_t rows, std::int64_t columns, Random& random, Storage& storage) {
  MatrixView matrix{WeightFormat::fp4, rows, columns, nullptr, columns / 2, nullptr, columns / 32};
  std::byte* values = storage.add(rows * columns / 2);
  for (std::int64_t i = 0; i < rows * columns / 2; ++i)
    values[i] = static_cast<std::byte>(random.bits());
  std::byte* scales = storage.add(rows * columns / 32);
  for (std::int64_t i = 0; i < rows * columns / 32; ++i) {
    scales[i] = static_cast<std::byte>(127 + scale_exponent(columns, random));
  }
  matrix.values = values;
  matrix.scales = scales;
  return matrix;
}

MatrixView make_fp8(std::int64_t rows, std::int64_t columns, Random& random, Storage& storage) {
  const std::int64_t scale_columns = ceil_div(columns, 128);
  MatrixView matrix{WeightFormat::fp8, rows, columns, nullptr, columns, nullptr, 4 * scale_columns};
  std::byte* values = storage.add(rows * columns);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    // Exponents up to 8 (values below 2): the byte 0x7f, NaN, cannot come.
    values[i] = static_cast<std::byte>((random.bits() & 0x80u) |
                                       static_cast<std::uint64_t>(random.below(64)));
  }
  const std::int64_t scale_count = ceil_div(rows, 128) * scale_columns;
  std::byte* scales = storage.add(4 * scale_count);
  for (std::int64_t i = 0; i < scale_count; ++i) {
    const float scale =
        static_cast<float>(std::ldexp(1 + random.uniform(), scale_exponent(columns, random)));
    std::memcpy(scales + 4 * i, &scale, sizeof scale);
  }
  matrix.values = values;
  matrix.scales = scales;
  return matrix;
}

MatrixView make_bf16(std::int64_t rows, std::int64_t columns, Random& random, Storage& storage) {
  MatrixView matrix{WeightFormat::bf16, rows, columns, nullptr, 2 * columns, nullptr, 0};
  std::byte* values = storage.add(2 * rows * columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = std::ldexp(1.0, scale_exponent(columns, random) + 1);
    for (std::int64_t c = 0; c < columns; ++c) {
      const BFloat16 value = to_bf16(static_cast<float>(scale * random.normal()));
      std::memcpy(values + 2 * (r * columns + c), &value, sizeof value);
    }
  }
  matrix.values = values;
  return matrix;
}

MatrixView make_matrix(WeightFormat format, std::int64_t rows, std::int64_t columns, Random& random,
                       Storage& storage) {
  switch (format) {
    case WeightFormat::fp4:
      return make_fp4(rows, columns, random, storage);
    case WeightFormat::fp8:
      return make_fp8(rows, columns, random, storage);
    case WeightFormat::bf16:
      break;
  }
  return make_bf16(rows, columns, random, storage);
}

std::vector<float> make_bias(std::int64_t count, Random& random) {
  std::vector<float> bias(static_cast<std::size_t>(count));
  for (float& value : bias) value = to_float(to_bf16(static_cast<float>(random.normal() / 4)));
  return bias;
}

ExpertWeights make_expert(const LayerConfig& config, WeightFormat format, Random random,
                          Storage& storage) {
  ExpertWeights expert;
  expert.gate = make_matrix(format, config.intermediate, config.hidden, random, storage);
  expert.up = make_matrix(format, config.intermediate, config.hidden, random, storage);
  expert.down = make_matrix(format, config.hidden, config.intermediate, random, storage);
  if (config.activation == Activation::swiglu_oai) {
    expert.gate_bias = make_bias(config.intermediate, random);
    expert.up_bias = make_bias(config.intermediate, random);
    expert.down_bias = make_bias(config.hidden, random);
  }
  return expert;
}

}  // namespace

LayerWeights synthetic_weights(const LayerConfig& config, std::uint64_t seed, std::int64_t first,
                               std::int64_t last) {
  auto storage = std::make_shared<Storage>();
  LayerWeights weights;
  weights.experts.resize(static_cast<std::size_t>(config.experts));
  for (std::int64_t e = first; e < last; ++e) {
    weights.experts[static_cast<std::size_t>(e)] =
        make_expert(config, weight_format(config.recipe),
                    Random(seed, static_cast<std::uint64_t>(e) << 20), *storage);
  }
  for (std::int64_t s = 0; s < config.shared_experts; ++s) {
    weights.shared.push_back(
        make_expert(config, shared_weight_format(config),
                    Random(seed, static_cast<std::uint64_t>(config.experts + s) << 20), *storage));
  }
  weights.owner = std::move(storage);
  return weights;
}

std::int64_t synthetic_expert_bytes(const LayerConfig& config, WeightFormat format) {
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    switch (format) {
      case WeightFormat::fp4:
        return rows * columns / 2 + rows * columns / 32;
      case WeightFormat::fp8:
        return rows * columns + 4 * ceil_div(rows, 128) * ceil_div(columns, 128);
      case WeightFormat::bf16:
        break;
    }
    return 2 * rows * columns;
  };
  return 2 * matrix(config.intermediate, config.hidden) +
         matrix(config.hidden, config.intermediate);
}

SyntheticInput synthetic_input(const LayerConfig& config, std::uint64_t seed, std::int64_t rank,
                               std::int64_t tokens) {
  Random random(seed ^ 0x5851f42d4c957f2du, static_cast<std::uint64_t>(rank) << 40);
  SyntheticInput input;
  std::vector<std::int64_t> order(static_cast<std::size_t>(config.experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(random.below(4)) - 2);
    for (std::int64_t c = 0; c < config.hidden; ++c) {
      input.x.push_back(to_bf16(static_cast<float>(magnitude * random.normal())));
    }
    // The first K of a shuffle: K distinct experts, all equally likely.
    std::iota(order.begin(), order.end(), std::int64_t{0});
    double sum = 0;
    for (std::int64_t k = 0; k < config.top_k; ++k) {
      std::swap(order[static_cast<std::size_t>(k)],
                order[static_cast<std::size_t>(k + random.below(config.experts - k))]);
      input.experts.push_back(order[static_cast<std::size_t>(k)]);
      input.weights.push_back(static_cast<float>(0.1 + random.uniform()));
      sum += input.weights.back();
    }
    for (auto weight = input.weights.end() - config.top_k; weight != input.weights.end();
         ++weight) {
      *weight = static_cast<float>(*weight / sum);
    }
  }
  return input;
}

}  // namespace megamoe::cli
