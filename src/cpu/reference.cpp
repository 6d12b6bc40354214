#include "cpu/reference.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "cpu/convert.hpp"
#include "layout/shape.hpp"
#include "layout/weight_matrix.hpp"
#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/recipe.hpp"
#include "numerics/ue8m0.hpp"
#include "routing/slots.hpp"

namespace megamoe {
namespace {

double round_to_bf16(double value) {
  return to_float(to_bf16(static_cast<float>(value)));
}

/// [rows, columns] in f64, in the format that the layer has them in.
std::vector<double> decoded(const MatrixView& matrix, WeightFormat format) {
  const FormattedMatrix formatted(matrix, format, "a weight matrix");
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(matrix.rows * matrix.columns));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      values.push_back(value_at(formatted.view(), row, column));
    }
  }
  return values;
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

double bias_at(const std::vector<float>& bias, std::int64_t row) {
  return bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(row)]};
}

/// What GEMM 2 sees of the activations: rounded to bf16, or to E4M3 with one scale per 128.
void requantise(IntermediateFormat format, std::vector<double>& activations) {
  if (format == IntermediateFormat::bf16) {
    for (double& value : activations) value = round_to_bf16(value);
    return;
  }
  const auto count = static_cast<std::int64_t>(activations.size());
  for (std::int64_t first = 0; first < count; first += kIntermediateGroup) {
    const std::int64_t size = min64(kIntermediateGroup, count - first);
    float group[kIntermediateGroup];
    std::uint8_t bytes[kIntermediateGroup];
    std::uint8_t scale = 0;
    for (std::int64_t c = 0; c < size; ++c) group[c] = static_cast<float>(activations[first + c]);
    quantise_e4m3_group(group, size, bytes, scale);
    for (std::int64_t c = 0; c < size; ++c) {
      activations[first + c] = double{e4m3_to_float(bytes[c])} * ue8m0_to_float(scale);
    }
  }
}

/// One expert's matrices in f64.
class ReferenceExpert {
 public:
  ReferenceExpert(const LayerConfig& config, const ExpertWeights& weights, WeightFormat format)
      : config_(config),
        weights_(weights),
        gate_(decoded(weights.gate, format)),
        up_(decoded(weights.up, format)),
        down_(decoded(weights.down, format)) {}

  /// One route's result, [hidden], each value rounded to bf16.
  void run(const double* x, float weight, double* result) const {
    const std::int64_t h = config_.hidden;
    const std::int64_t i = config_.intermediate;
    const ActivationRule rule = make_activation_rule(config_.activation, config_.activation_limit);
    std::vector<double> activations(static_cast<std::size_t>(i));
    for (std::int64_t j = 0; j < i; ++j) {
      const double gate = round_to_bf16(dot(&gate_[j * h], x, h) + bias_at(weights_.gate_bias, j));
      const double up = round_to_bf16(dot(&up_[j * h], x, h) + bias_at(weights_.up_bias, j));
      activations[j] = activate_f64(rule, gate, up) * weight;
    }
    requantise(intermediate_format(config_.recipe), activations);
    for (std::int64_t c = 0; c < h; ++c) {
      result[c] = round_to_bf16(dot(&down_[c * i], activations.data(), i) +
                                double{weight} * bias_at(weights_.down_bias, c));
    }
  }

 private:
  const LayerConfig& config_;
  const ExpertWeights& weights_;
  std::vector<double> gate_, up_, down_;
};

}  // namespace

std::vector<double> reference_x(Recipe recipe, std::int64_t hidden, std::span<const BFloat16> x) {
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / hidden;
  std::vector<std::byte> values(static_cast<std::size_t>(tokens * x_row_bytes(recipe, hidden)));
  std::vector<std::byte> scales(
      static_cast<std::size_t>(tokens * x_scale_row_bytes(recipe, hidden)));
  for (std::int64_t t = 0; t < tokens; ++t) {
    convert_x_row(recipe, hidden, &x[t * hidden], values.data() + t * x_row_bytes(recipe, hidden),
                  scales.data() + t * x_scale_row_bytes(recipe, hidden));
  }
  return reference_x(recipe, hidden, tokens, values, scales);
}

std::vector<double> reference_x(Recipe recipe, std::int64_t hidden, std::int64_t tokens,
                                std::span<const std::byte> values,
                                std::span<const std::byte> scales) {
  std::vector<double> x(static_cast<std::size_t>(tokens * hidden));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::byte* row = values.data() + t * x_row_bytes(recipe, hidden);
    const std::byte* row_scales = scales.data() + t * x_scale_row_bytes(recipe, hidden);
    for (std::int64_t c = 0; c < hidden; ++c) {
      double& value = x[t * hidden + c];
      switch (x_format(recipe)) {
        case XFormat::bf16: {
          BFloat16 bits;
          std::memcpy(&bits, row + 2 * c, sizeof bits);
          value = to_float(bits);
          break;
        }
        case XFormat::e4m3_ue8m0_32:
          value = double{e4m3_to_float(std::to_integer<std::uint8_t>(row[c]))} *
                  ue8m0_to_float(std::to_integer<std::uint8_t>(row_scales[c / 32]));
          break;
        case XFormat::e4m3_f32_128: {
          float scale;
          std::memcpy(&scale, row_scales + c / 128 * 4, sizeof scale);
          value = double{e4m3_to_float(std::to_integer<std::uint8_t>(row[c]))} * scale;
          break;
        }
      }
    }
  }
  return x;
}

std::vector<float> reference_forward(const LayerConfig& config, const LayerWeights& layer,
                                     std::span<const double> x,
                                     std::span<const std::int64_t> experts,
                                     std::span<const float> weights) {
  const std::int64_t h = config.hidden;
  const std::int64_t k = config.top_k;
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / h;
  const std::int64_t slots = k + config.shared_experts;
  const auto list_of = [&](std::int64_t t) {
    return SlotList{&experts[t * k], &weights[t * k], k, config.experts};
  };
  // Expert by expert, so that each is decoded once; summed in slot order at the end.
  std::vector<double> results(static_cast<std::size_t>(tokens * slots * h), 0.0);
  for (std::int64_t e = 0; e < config.experts + config.shared_experts; ++e) {
    const bool shared = e >= config.experts;
    std::optional<ReferenceExpert> expert;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t s = shared ? k + e - config.experts : 0;
           s < (shared ? k + e - config.experts + 1 : k); ++s) {
        if (!shared && (list_of(t).ids[s] != e || !is_route(list_of(t), s))) continue;
        if (!expert) {
          expert.emplace(config, shared ? layer.shared[e - config.experts] : layer.experts[e],
                         shared ? shared_weight_format(config) : weight_format(config.recipe));
        }
        const float weight = shared ? 1.0f : route_weight(list_of(t), s);
        expert->run(&x[t * h], weight, &results[(t * slots + s) * h]);
      }
    }
  }
  std::vector<float> y(static_cast<std::size_t>(tokens * h));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool bad = first_bad_slot(list_of(t)) >= 0;
    for (std::int64_t c = 0; c < h; ++c) {
      double sum = 0;
      for (std::int64_t s = 0; s < slots; ++s) sum += results[(t * slots + s) * h + c];
      y[t * h + c] = bad ? std::numeric_limits<float>::quiet_NaN()
                         : to_float(to_bf16(static_cast<float>(sum)));
    }
  }
  return y;
}

double relative_l2(std::span<const float> a, std::span<const float> b) {
  double distance = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (a[i] == b[i]) {  // infinities too, whose difference would be NaN
      norm += std::isinf(b[i]) ? 0.0 : double{b[i]} * b[i];
      continue;
    }
    distance += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  if (distance == 0) return 0;
  return std::sqrt(distance / norm);
}

double symmetric_difference(std::span<const float> a, std::span<const float> b) {
  double ab = 0;
  double squares = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ab += double{a[i]} * b[i];
    squares += double{a[i]} * a[i] + double{b[i]} * b[i];
  }
  return squares == 0 ? 0 : 1 - 2 * ab / squares;
}

}  // namespace megamoe
