// The activation between the GEMMs, of one (gate, up) pair.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "megamoe/types.hpp"

#include "numerics/exp.hpp"

namespace megamoe {

/// swiglu_oai: the factor in its sigmoid, and the clamp where none is given.
inline constexpr double kSwigluOaiSlope = 1.702;
inline constexpr float kSwigluOaiLimit = 7.0f;

/// act(gate, up) = g / (1 + e^-(slope g)) * (u + up_offset), g = min(gate, limit), u = clamp(up,
/// -limit, limit): both activations in one formula. An infinite limit clamps nothing.
struct ActivationRule {
  Activation kind = Activation::swiglu;
  float limit = std::numeric_limits<float>::infinity();
  float slope = 1.0f;
  /// -0 for swiglu: u + -0 is u for every u, zeros of either sign included.
  float up_offset = -0.0f;
};

/// `limit`, where given, is positive (its caller has checked). swiglu without one does not clamp,
/// swiglu_oai clamps at 7.
constexpr ActivationRule make_activation_rule(Activation kind, std::optional<float> limit) {
  ActivationRule rule;
  rule.kind = kind;
  if (kind == Activation::swiglu_oai) {
    rule.limit = kSwigluOaiLimit;
    rule.slope = static_cast<float>(kSwigluOaiSlope);
    rule.up_offset = 1.0f;
  }
  if (limit.has_value()) rule.limit = *limit;
  return rule;
}

/// min(value, high) that keeps NaN.
template <class Real>
constexpr Real clamp_above(Real value, Real high) {
  return value > high ? high : value;
}

/// clamp(value, -bound, bound) that keeps NaN.
template <class Real>
constexpr Real clamp_magnitude(Real value, Real bound) {
  const Real below = value > bound ? bound : value;
  return below < -bound ? -bound : below;
}

/// In f32, every operation rounded by itself and in the order written here: the bits of the CPU
/// backend. NaN in gate or up gives NaN.
constexpr float activate(const ActivationRule& rule, float gate, float up) {
  const float g = clamp_above(gate, rule.limit);
  const float u = clamp_magnitude(up, rule.limit);
  const float silu = g / (1.0f + exp_f32(-(rule.slope * g)));
  return silu * (u + rule.up_offset);
}

/// The same in f64 with the slope as the model states it: the specification. Same rule for NaN.
inline double activate_f64(const ActivationRule& rule, double gate, double up) {
  const double limit = rule.limit;
  const double slope = rule.kind == Activation::swiglu_oai ? kSwigluOaiSlope : 1.0;
  const double g = clamp_above(gate, limit);
  const double u = clamp_magnitude(up, limit);
  return g / (1.0 + std::exp(-(slope * g))) * (u + static_cast<double>(rule.up_offset));
}

}  // namespace megamoe
