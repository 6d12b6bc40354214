#include "numerics/block_scale.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "numerics/nearest.hpp"
#include "numerics/sweep.hpp"

namespace megamoe::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

static_assert(e4m3_group_scale(448.0f) == 127 && e4m3_group_scale(448.1f) == 128);
static_assert(e2m1_group_scale(6.0f) == 127 && e2m1_group_scale(6.1f) == 128);
static_assert(e4m3_f32_scale(448.0f) == 1.0f && e4m3_f32_scale(0.0f) == 1.0f);

constexpr std::uint8_t first_byte_of_group() {
  const float values[2] = {448.0f, -3.0f};
  std::uint8_t bytes[2] = {};
  std::uint8_t scale = 0;
  quantise_e4m3_group(values, 2, bytes, scale);
  return scale == 127 ? bytes[0] : 0;
}
static_assert(first_byte_of_group() == kE4m3MaxByte);

constexpr std::uint8_t packed_byte_of_group() {
  const float values[2] = {6.0f, -0.5f};
  std::uint8_t packed = 0;
  std::uint8_t scale = 0;
  quantise_e2m1_group(values, 2, &packed, scale);
  return scale == 127 ? packed : 0;
}
static_assert(packed_byte_of_group() == 0x97, "the even index is the low nibble");

/// Succeeds where scale(amax) is the least byte with amax / 2^(byte - 127) <= largest, for every
/// swept finite amax.
template <class Scale>
::testing::AssertionResult is_least_scale(Scale scale, double largest) {
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  sweep_floats(4099, [&](float x) {
    const float amax = std::fabs(x);
    if (!is_finite(amax) || amax == 0.0f) return true;
    const int byte = scale(amax);
    const bool fits = std::ldexp(amax, 127 - byte) <= largest;
    const bool least = byte == 0 || std::ldexp(static_cast<double>(amax), 128 - byte) > largest;
    if (fits && least) return true;
    result = ::testing::AssertionFailure()
             << "amax " << amax << " gets the byte " << byte << (fits ? ", not the least" : "");
    return false;
  });
  return result;
}

TEST(GroupScale, OfE4m3IsTheLeastPowerOfTwoUnderWhichNothingExceeds448) {
  EXPECT_TRUE(is_least_scale(e4m3_group_scale, 448.0));
  EXPECT_EQ(e4m3_group_scale(kLargest), 247);
  EXPECT_EQ(e4m3_group_scale(kLeast), 0);
  EXPECT_EQ(e4m3_group_scale(0.0f), 127);
}

TEST(GroupScale, OfE2m1IsTheLeastPowerOfTwoUnderWhichNothingExceeds6) {
  EXPECT_TRUE(is_least_scale(e2m1_group_scale, 6.0));
  EXPECT_EQ(e2m1_group_scale(kLargest), 253);
  EXPECT_EQ(e2m1_group_scale(kLeast), 0);
  EXPECT_EQ(e2m1_group_scale(0.0f), 127);
}

TEST(GroupScale, InF32IsAmaxOver448AndNeverSubnormal) {
  EXPECT_EQ(e4m3_f32_scale(0.0f), 1.0f);
  sweep_floats(4099, [](float x) {
    const float amax = std::fabs(x);
    if (!is_finite(amax) || amax == 0.0f) return true;
    const float scale = e4m3_f32_scale(amax);
    const bool right = scale == std::fmax(amax / 448.0f, 0x1p-126f) && is_finite(1.0f / scale);
    EXPECT_TRUE(right) << "amax " << amax << " gets " << scale;
    return right;
  });
}

/// Groups whose values spread over `spread` binades below 2^exponent, some of them zero.
class Groups {
 public:
  std::vector<float> next(std::size_t count, int exponent, int spread) {
    std::vector<float> values(count);
    for (float& value : values) {
      const double mantissa = 1.0 + std::uniform_real_distribution<>(0, 1)(random_);
      const int below = std::uniform_int_distribution<>(0, spread)(random_);
      const double sign = random_() % 2 == 0 ? 1.0 : -1.0;
      value = random_() % 16 == 0
                  ? 0.0f
                  : static_cast<float>(sign * std::ldexp(mantissa, exponent - 1 - below));
      if (!is_finite(value)) value = kLargest;
    }
    return values;
  }

 private:
  std::mt19937 random_{20240607};
};

/// The exponents of amax in the tests: subnormal, the least normal, the ordinary, the largest.
constexpr int kExponents[] = {-146, -140, -127, -126, -125, -120, -118, -117,
                              -20,  0,    1,    9,    60,   127,  128};

TEST(QuantiseE4m3, GivesTheNearestByteOfTheExactQuotient) {
  const NearestCode nearest(e4m3_to_float, kE4m3MaxByte);
  Groups groups;
  for (int exponent : kExponents) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      const std::vector<float> values = groups.next(128, exponent, repeat % 24);
      std::uint8_t bytes[128];
      std::uint8_t scale = 255;
      quantise_e4m3_group(values.data(), 128, bytes, scale);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double quotient = std::ldexp(std::fabs(values[i]), 127 - scale);
        ASSERT_LE(quotient, 448.0) << "2^" << exponent << ", value " << i;
        ASSERT_EQ(bytes[i] & 0x7F, nearest.of(quotient)) << "2^" << exponent << ", value " << i;
        ASSERT_EQ(bytes[i] >> 7, std::signbit(values[i])) << "2^" << exponent << ", value " << i;
      }
    }
  }
}

TEST(QuantiseE4m3, WithAnF32ScaleMultipliesByItsReciprocal) {
  Groups groups;
  for (int exponent : kExponents) {
    for (int repeat = 0; repeat < 100; ++repeat) {
      const std::vector<float> values = groups.next(128, exponent, repeat % 24);
      std::uint8_t bytes[128];
      float scale = 0.0f;
      quantise_e4m3_group_f32(values.data(), 128, bytes, scale);
      float amax = 0.0f;
      for (float value : values) amax = std::fmax(amax, std::fabs(value));
      ASSERT_EQ(scale, e4m3_f32_scale(amax));
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(bytes[i], float_to_e4m3(values[i] * (1.0f / scale)))
            << "2^" << exponent << ", value " << i;
        // Half a step of E4M3 is 2^-4 of a normal value and 2^-10 of the scale below; f32 adds a
        // little.
        const double error = std::fabs(e4m3_to_float(bytes[i]) * double{scale} - values[i]);
        ASSERT_LE(error, std::fmax(std::fabs(values[i]) * 0x1.001p-4, scale * 0x1.001p-10))
            << "2^" << exponent << ", value " << i;
      }
    }
  }
}

TEST(QuantiseE2m1, GivesTheNearestNibbleOfTheExactQuotientEvenIndexLow) {
  const NearestCode nearest(e2m1_to_float, kE2m1MaxNibble);
  Groups groups;
  for (int exponent : kExponents) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      const std::vector<float> values = groups.next(32, exponent, repeat % 6);
      std::uint8_t packed[16];
      std::uint8_t scale = 255;
      quantise_e2m1_group(values.data(), 32, packed, scale);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint8_t nibble = i % 2 == 0 ? packed[i / 2] & 0xF : packed[i / 2] >> 4;
        const double quotient = std::ldexp(std::fabs(values[i]), 127 - scale);
        ASSERT_LE(quotient, 6.0) << "2^" << exponent << ", value " << i;
        ASSERT_EQ(nibble & 0x7, nearest.of(quotient)) << "2^" << exponent << ", value " << i;
        ASSERT_EQ(nibble >> 3, std::signbit(values[i])) << "2^" << exponent << ", value " << i;
      }
    }
  }
}

TEST(QuantiseE2m1, FillsTheHighNibbleOfALastOddValueWithZeroAndWritesNoFurther) {
  const std::array<float, 3> values{1.0f, 2.0f, -6.0f};
  std::array<std::uint8_t, 3> packed{0xEE, 0xEE, 0xEE};
  std::uint8_t scale = 0;
  quantise_e2m1_group(values.data(), 3, packed.data(), scale);
  EXPECT_EQ(packed, (std::array<std::uint8_t, 3>{0x42, 0x0F, 0xEE}));
  EXPECT_EQ(scale, 127);
}

/// The three quantisers' results for one group of 32 values.
struct Quantised {
  explicit Quantised(const std::array<float, 32>& values) {
    quantise_e4m3_group(values.data(), 32, e4m3.data(), e4m3_scale);
    quantise_e4m3_group_f32(values.data(), 32, e4m3_f32.data(), f32_scale);
    quantise_e2m1_group(values.data(), 32, e2m1.data(), e2m1_scale);
  }
  std::array<std::uint8_t, 32> e4m3{};
  std::array<std::uint8_t, 32> e4m3_f32{};
  std::array<std::uint8_t, 16> e2m1{};
  std::uint8_t e4m3_scale = 1;
  float f32_scale = 0.0f;
  std::uint8_t e2m1_scale = 1;
};

TEST(Quantise, AnAllZeroGroupGivesZerosAndTheScaleOne) {
  const Quantised zeros(std::array<float, 32>{});
  EXPECT_EQ(zeros.e4m3, (std::array<std::uint8_t, 32>{}));
  EXPECT_EQ(zeros.e4m3_scale, kUe8m0One);
  EXPECT_EQ(zeros.e4m3_f32, (std::array<std::uint8_t, 32>{}));
  EXPECT_EQ(zeros.f32_scale, 1.0f);
  EXPECT_EQ(zeros.e2m1, (std::array<std::uint8_t, 16>{}));
  EXPECT_EQ(zeros.e2m1_scale, kUe8m0One);
}

TEST(Quantise, ANaNOrInfinityAnywhereMakesTheWholeGroupNaN) {
  std::array<std::uint8_t, 32> all_nan;
  all_nan.fill(kE4m3NaN);
  for (float culprit : {kNaN, -kNaN, f32_from_bits(0x7F800001u), kInfinity, -kInfinity}) {
    for (std::size_t position = 0; position < 32; ++position) {
      std::array<float, 32> values;
      values.fill(kLargest);
      values[position] = culprit;
      const Quantised group(values);
      ASSERT_EQ(group.e4m3, all_nan) << culprit << " at " << position;
      ASSERT_EQ(group.e4m3_scale, kUe8m0One) << culprit << " at " << position;
      ASSERT_EQ(group.e4m3_f32, all_nan) << culprit << " at " << position;
      ASSERT_EQ(group.f32_scale, 1.0f) << culprit << " at " << position;
      ASSERT_EQ(group.e2m1, (std::array<std::uint8_t, 16>{})) << culprit << " at " << position;
      ASSERT_EQ(group.e2m1_scale, kUe8m0NaN) << culprit << " at " << position;
    }
  }
}

TEST(Quantise, TheLargestFiniteGroupIsNotTakenForAnInfinity) {
  std::array<float, 32> values;
  values.fill(-kLargest);
  const Quantised group(values);
  EXPECT_EQ(group.e4m3_scale, 247);
  EXPECT_EQ(group.e4m3[0], float_to_e4m3(-256.0f));
  EXPECT_EQ(group.e4m3_f32[0], float_to_e4m3(-448.0f));
  EXPECT_EQ(group.e2m1_scale, 253);
  EXPECT_EQ(group.e2m1[0], e2m1_pack(float_to_e2m1(-4.0f), float_to_e2m1(-4.0f)));
}

TEST(Quantise, AnEmptyGroupWritesOnlyItsScale) {
  std::uint8_t byte = 0xEE;
  std::uint8_t scale = 0;
  quantise_e4m3_group(nullptr, 0, &byte, scale);
  EXPECT_EQ(byte, 0xEE);
  EXPECT_EQ(scale, kUe8m0One);
}

}  // namespace
}  // namespace megamoe::test
