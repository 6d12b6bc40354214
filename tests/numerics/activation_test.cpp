#include "numerics/activation.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr ActivationRule kPlain = make_activation_rule(Activation::swiglu, std::nullopt);
constexpr ActivationRule kClamped = make_activation_rule(Activation::swiglu, 10.0f);
constexpr ActivationRule kOai = make_activation_rule(Activation::swiglu_oai, std::nullopt);
constexpr ActivationRule kOaiUnclamped = make_activation_rule(Activation::swiglu_oai, kInfinity);
constexpr ActivationRule kRules[] = {kPlain, kClamped, kOai, kOaiUnclamped};

static_assert(kPlain.limit == kInfinity && kClamped.limit == 10.0f && kOai.limit == 7.0f);
static_assert(make_activation_rule(Activation::swiglu_oai, 3.0f).limit == 3.0f);
static_assert(activate(kPlain, 0.0f, 5.0f) == 0.0f && activate(kOai, 0.0f, 5.0f) == 0.0f);

float bf16(std::uint32_t bits) {
  return to_float(BFloat16{static_cast<std::uint16_t>(bits)});
}

/// How far `activate` may be from f64. The exponent slope * g is rounded to f32 (and 1.702 as
/// well), which the exponential turns into a relative error in proportion to it; the rest is a
/// handful of roundings. Where e^-x overflows, g / (1 + e^-x) is -0 in f32 and at most 89 * 2^-128
/// in f64.
double tolerance(const ActivationRule& rule, double gate, double up, double wanted) {
  const double exponent = rule.kind == Activation::swiglu_oai ? std::fmin(std::fabs(gate), 100) : 0;
  const double factor = std::fabs(up) + 1.0;
  return std::fabs(wanted) * (5e-7 + 1.7 * 0x1p-23 * exponent) + 89 * 0x1p-128 * factor;
}

TEST(Activation, AgreesWithF64ForEveryFiniteBf16Gate) {
  for (const ActivationRule& rule : kRules) {
    for (float up : {0.0f, 1.0f, -1.0f, 0.30078125f, -6.9375f, 12.5f, -1e4f, 0x1p-120f}) {
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const float gate = bf16(bits);
        if (!is_finite(gate)) continue;
        const double wanted = activate_f64(rule, gate, up);
        const float got = activate(rule, gate, up);
        if (std::fabs(wanted) > 0x1.ffffffp127) {
          ASSERT_FALSE(is_finite(got)) << "gate " << gate << ", up " << up;
        } else {
          ASSERT_LE(std::fabs(got - wanted), tolerance(rule, gate, up, wanted))
              << "gate " << gate << ", up " << up << ": got " << got << ", wanted " << wanted;
        }
      }
    }
  }
}

TEST(Activation, AgreesWithF64ForEveryFiniteBf16Up) {
  for (const ActivationRule& rule : kRules) {
    for (float gate : {1.0f, -1.0f, 0.0078125f, 7.5f, -20.0f}) {
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const float up = bf16(bits);
        // Leave room for gate * up below the overflow of f32.
        if (!(std::fabs(up) < 1e37f)) continue;
        const double wanted = activate_f64(rule, gate, up);
        ASSERT_LE(std::fabs(activate(rule, gate, up) - wanted), tolerance(rule, gate, up, wanted))
            << "gate " << gate << ", up " << up;
      }
    }
  }
}

TEST(Activation, SwigluIsSiluOfTheGateTimesUp) {
  EXPECT_NEAR(activate_f64(kPlain, 2.0, 3.0), 2.0 / (1.0 + std::exp(-2.0)) * 3.0, 1e-15);
  EXPECT_NEAR(activate_f64(kPlain, -40.0, 30.0), -40.0 / (1.0 + std::exp(40.0)) * 30.0, 1e-15);
}

TEST(Activation, SwigluOaiIsUpPlusOneTimesGateTimesItsSigmoid) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-1.702 * 2.0));
  EXPECT_NEAR(activate_f64(kOai, 2.0, 3.0), (3.0 + 1.0) * 2.0 * sigmoid, 1e-14);
}

TEST(Activation, TheLimitClampsTheGateFromAboveAndUpFromBothSides) {
  for (const ActivationRule& rule : {kClamped, kOai}) {
    const float limit = rule.limit;
    EXPECT_EQ(activate(rule, 1e6f, 2.0f), activate(rule, limit, 2.0f));
    EXPECT_EQ(activate(rule, 2.0f, 1e6f), activate(rule, 2.0f, limit));
    EXPECT_EQ(activate(rule, 2.0f, -1e6f), activate(rule, 2.0f, -limit));
    EXPECT_EQ(activate(rule, kInfinity, -kInfinity), activate(rule, limit, -limit));
    EXPECT_NE(activate(rule, -limit - 4.0f, 2.0f), activate(rule, -limit, 2.0f));
    EXPECT_EQ(activate_f64(rule, 1e6, -1e6), activate_f64(rule, limit, -limit));
  }
}

TEST(Activation, WithoutALimitNothingIsClamped) {
  EXPECT_EQ(activate(kPlain, 1e6f, -1e6f), -1e12f);
  EXPECT_EQ(activate_f64(kPlain, 1e6, -1e6), -1e12);
}

TEST(Activation, ANaNInGateOrUpComesOut) {
  for (const ActivationRule& rule : kRules) {
    for (float other : {0.0f, 1.0f, -1e30f, 1e30f, kInfinity, kNaN}) {
      EXPECT_TRUE(is_nan(activate(rule, kNaN, other))) << other;
      EXPECT_TRUE(is_nan(activate(rule, other, kNaN))) << other;
      EXPECT_TRUE(is_nan(activate(rule, -kNaN, other))) << other;
      EXPECT_TRUE(std::isnan(activate_f64(rule, kNaN, other))) << other;
      EXPECT_TRUE(std::isnan(activate_f64(rule, other, kNaN))) << other;
    }
  }
}

TEST(Activation, AnUnclampedInfinityDoesNotComeOutFinite) {
  EXPECT_FALSE(is_finite(activate(kPlain, kInfinity, 1.0f)));
  EXPECT_FALSE(is_finite(activate(kPlain, 1.0f, -kInfinity)));
  for (const ActivationRule& rule : kRules) {
    EXPECT_FALSE(is_finite(activate(rule, -kInfinity, 1.0f)));
    EXPECT_FALSE(std::isfinite(activate_f64(rule, -kInfinity, 1.0)));
  }
}

TEST(Activation, AZeroUpKeepsItsSignInSwiglu) {
  EXPECT_TRUE(std::signbit(activate(kPlain, 1.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(activate(kPlain, 1.0f, 0.0f)));
}

}  // namespace
}  // namespace megamoe
