#include "numerics/exp.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "numerics/sweep.hpp"

namespace megamoe::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

static_assert(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);

/// The distance of two f32 around `value`; below the normal range, that of the subnormals.
double ulp_of(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

TEST(Exp, IsWithinTwoUlpOfTheExponentialAndOverflowsWhereItDoes) {
  sweep_floats(kSweepStride, [](float x) {
    if (is_nan(x)) return true;
    const double wanted = std::exp(static_cast<double>(x));
    const float got = exp_f32(x);
    const bool overflows = wanted > 0x1.ffffffp127;
    const bool right =
        overflows ? got == kInfinity : std::fabs(got - wanted) <= 2.0 * ulp_of(wanted);
    EXPECT_TRUE(right) << "f32 0x" << std::hex << f32_bits(x) << " (" << x << "): got " << got
                       << ", wanted " << wanted;
    return right;
  });
}

TEST(Exp, UnderflowsGraduallyAndThenToZero) {
  EXPECT_EQ(exp_f32(-87.5f), static_cast<float>(std::exp(-87.5)));
  EXPECT_EQ(exp_f32(-103.0f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
}

TEST(Exp, OfANaNIsNaN) {
  for (std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(is_nan(exp_f32(f32_from_bits(bits)))) << std::hex << bits;
  }
}

/// The inputs of the tests below: 512 steps through the range of normal results.
constexpr float input(std::size_t i) {
  return -87.0f + 0.34375f * static_cast<float>(i) + 1e-3f;
}
constexpr std::size_t kInputs = 512;

constexpr std::array<float, kInputs> exp_of_inputs() {
  std::array<float, kInputs> results{};
  for (std::size_t i = 0; i < kInputs; ++i) results[i] = exp_f32(input(i));
  return results;
}

TEST(Exp, HasTheSameBitsWhenCompiledAsWhenEvaluatedByTheCompiler) {
  // Constant evaluation never contracts a multiply and an add: generated code must not either.
  constexpr std::array<float, kInputs> kConstant = exp_of_inputs();
  for (std::size_t i = 0; i < kInputs; ++i) {
    volatile float x = input(i);
    ASSERT_EQ(f32_bits(exp_f32(x)), f32_bits(kConstant[i])) << "x = " << x;
  }
}

/// Four lanes, as a vector kernel would have them.
struct FourLaneOps {
  using Float = std::array<float, 4>;
  using Int = std::array<std::int32_t, 4>;

  template <class Result, class Function, class... Lanes>
  static Result each(Function function, const Lanes&... lanes) {
    Result result;
    for (std::size_t i = 0; i < 4; ++i) result[i] = function(lanes[i]...);
    return result;
  }
  using S = ScalarExpOps;
  static Float set(float value) { return {value, value, value, value}; }
  static Float add(Float a, Float b) { return each<Float>(S::add, a, b); }
  static Float subtract(Float a, Float b) {
    return each<Float>([](float x, float y) { return x - y; }, a, b);
  }
  static Float multiply(Float a, Float b) { return each<Float>(S::multiply, a, b); }
  static Float clamp(Float x, Float low, Float high) { return each<Float>(S::clamp, x, low, high); }
  static Int bits_minus(Float a, Float b) { return each<Int>(S::bits_minus, a, b); }
  static Int half(Int i) { return each<Int>(S::half, i); }
  static Int subtract(Int a, Int b) {
    return each<Int>([](std::int32_t x, std::int32_t y) { return S::subtract(x, y); }, a, b);
  }
  static Float power_of_two(Int i) { return each<Float>(S::power_of_two, i); }
};

TEST(Exp, OfAVectorTypeHasTheBitsOfTheScalar) {
  for (std::size_t i = 0; i < kInputs; i += 4) {
    const FourLaneOps::Float x{input(i), input(i + 1), input(i + 2), -input(i + 3)};
    const FourLaneOps::Float got = exp_steps<FourLaneOps>(x);
    for (std::size_t lane = 0; lane < 4; ++lane) {
      ASSERT_EQ(f32_bits(got[lane]), f32_bits(exp_f32(x[lane]))) << "x = " << x[lane];
    }
  }
}

}  // namespace
}  // namespace megamoe::test
