// The storage formats, judged by golden tables, by an oracle in f64 that knows only the decoders,
// and by constants.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/f16.hpp"
#include "numerics/golden_check.hpp"
#include "numerics/nearest.hpp"
#include "numerics/sweep.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe::test {
namespace {

static_assert(to_float(BFloat16{0x3FC0}) == 1.5f);
static_assert(to_bf16(0x1.01p0f).bits == 0x3F80, "a tie goes to the even neighbour below");
static_assert(to_bf16(0x1.03p0f).bits == 0x3F82, "a tie goes to the even neighbour above");
static_assert(f16_to_float(0x0001) == 0x1p-24f && f16_to_float(0x7BFF) == 65504.0f);
static_assert(float_to_f16(0x1p-25f) == 0 && float_to_f16(65520.0f) == kF16Infinity);
static_assert(e4m3_to_float(0x01) == 0x1p-9f && e4m3_to_float(kE4m3MaxByte) == kE4m3Max);
static_assert(float_to_e4m3(1.0f) == 0x38 && float_to_e4m3(-1e9f) == 0xFE);
static_assert(e2m1_to_float(0xF) == -6.0f && e2m1_to_float(0x1) == 0.5f);
static_assert(float_to_e2m1(5.0f) == 0x6 && float_to_e2m1(-7.0f) == 0xF);
static_assert(e2m1_low(0xA3) == 0x3 && e2m1_high(0xA3) == 0xA && e2m1_pack(0x3, 0xA) == 0xA3);
static_assert(ue8m0_to_float(0) == 0x1p-127f && ue8m0_to_float(254) == 0x1p127f);
static_assert(float_to_ue8m0_up(1.0f) == 127 && float_to_ue8m0_up(0x1.000002p0f) == 128);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float decode_bf16(std::uint32_t code) {
  return to_float(BFloat16{static_cast<std::uint16_t>(code)});
}
std::uint16_t encode_bf16(float value) {
  return to_bf16(value).bits;
}
std::uint8_t magnitude_to_ue8m0(float value) {
  return float_to_ue8m0_up(std::fabs(value));
}

TEST(Formats, EncodingsAreTheGoldenOnes) {
  EXPECT_TRUE(encodes_as_golden(encode_bf16, golden::kBf16Encoded));
  EXPECT_TRUE(encodes_as_golden(float_to_f16, golden::kF16Encoded));
  EXPECT_TRUE(encodes_as_golden(float_to_e4m3, golden::kE4m3Encoded));
  EXPECT_TRUE(encodes_as_golden(float_to_e2m1, golden::kE2m1Encoded));
  EXPECT_TRUE(encodes_as_golden(magnitude_to_ue8m0, golden::kUe8m0Encoded));
}

TEST(Formats, DecodingsAreTheGoldenOnes) {
  EXPECT_TRUE(decodes_as_golden(decode_bf16, kHalfDomain, golden::kBf16Decoded));
  EXPECT_TRUE(decodes_as_golden(f16_to_float, kHalfDomain, golden::kF16Decoded));
  EXPECT_TRUE(decodes_as_golden(e4m3_to_float, kByteDomain, golden::kE4m3Decoded));
  EXPECT_TRUE(decodes_as_golden(e2m1_to_float, kNibbleDomain, golden::kE2m1Decoded));
  EXPECT_TRUE(decodes_as_golden(ue8m0_to_float, kByteDomain, golden::kUe8m0Decoded));
}

/// Succeeds where encode(decode(code)) is the code again for every code below `codes` that is no
/// NaN.
template <class Encode, class Decode>
::testing::AssertionResult returns_every_code(std::uint32_t codes, Encode encode, Decode decode) {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const float value = decode(code);
    if (!is_nan(value) && encode(value) != code) {
      return ::testing::AssertionFailure()
             << std::hex << "code 0x" << code << " returns as 0x" << std::uint32_t{encode(value)};
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Formats, EveryCodeReturnsThroughFloat) {
  EXPECT_TRUE(returns_every_code(65536, encode_bf16, decode_bf16));
  EXPECT_TRUE(returns_every_code(65536, float_to_f16, f16_to_float));
  EXPECT_TRUE(returns_every_code(256, float_to_e4m3, e4m3_to_float));
  EXPECT_TRUE(returns_every_code(16, float_to_e2m1, e2m1_to_float));
  EXPECT_TRUE(returns_every_code(255, float_to_ue8m0_up, ue8m0_to_float));
}

TEST(Formats, NaNEncodesToTheCanonicalNaNWhateverItsSign) {
  for (std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC00000u}) {
    const float nan = f32_from_bits(bits);
    EXPECT_EQ(to_bf16(nan), kBf16NaN) << std::hex << bits;
    EXPECT_EQ(float_to_f16(nan), kF16NaN) << std::hex << bits;
    EXPECT_EQ(float_to_e4m3(nan), kE4m3NaN) << std::hex << bits;
    EXPECT_EQ(float_to_e2m1(nan), kE2m1MaxNibble) << std::hex << bits;
    EXPECT_EQ(float_to_ue8m0_up(nan), kUe8m0NaN) << std::hex << bits;
  }
}

TEST(Formats, InfinitySaturatesWhereTheFormatHasNone) {
  EXPECT_EQ(float_to_e4m3(kInfinity), kE4m3MaxByte);
  EXPECT_EQ(float_to_e4m3(-kInfinity), kE4m3MaxByte | 0x80);
  EXPECT_EQ(float_to_e2m1(kInfinity), kE2m1MaxNibble);
  EXPECT_EQ(float_to_e2m1(-kInfinity), kE2m1MaxNibble | 0x8);
  EXPECT_EQ(float_to_ue8m0_up(kInfinity), kUe8m0Max);
  EXPECT_EQ(float_to_f16(-kInfinity), kF16Infinity | 0x8000);
  EXPECT_EQ(to_bf16(kInfinity).bits, 0x7F80);
}

TEST(Formats, EncodingIsSymmetricInTheSign) {
  sweep_floats(kSweepStride, [](float x) {
    if (is_nan(x)) return true;
    const bool symmetric = encode_bf16(-x) == (encode_bf16(x) ^ 0x8000) &&
                           float_to_f16(-x) == (float_to_f16(x) ^ 0x8000) &&
                           float_to_e4m3(-x) == (float_to_e4m3(x) ^ 0x80) &&
                           float_to_e2m1(-x) == (float_to_e2m1(x) ^ 0x8);
    EXPECT_TRUE(symmetric) << "f32 0x" << std::hex << f32_bits(x);
    return symmetric;
  });
}

TEST(Formats, SmallFormatsRoundToTheNearestAndTiesToEven) {
  const NearestCode e4m3(e4m3_to_float, kE4m3MaxByte);
  const NearestCode e2m1(e2m1_to_float, kE2m1MaxNibble);
  const NearestCode f16([](std::uint32_t code) { return f16_to_float(code); }, kF16Infinity - 1);
  sweep_floats(4099, [&](float x) {
    if (is_nan(x)) return true;
    const double magnitude = std::fabs(x);
    bool nearest = (float_to_e4m3(x) & 0x7F) == e4m3.of(magnitude) &&
                   (float_to_e2m1(x) & 0x7) == e2m1.of(magnitude);
    if (magnitude < 65520.0) nearest &= (float_to_f16(x) & 0x7FFF) == f16.of(magnitude);
    EXPECT_TRUE(nearest) << "f32 0x" << std::hex << f32_bits(x);
    return nearest;
  });
}

TEST(Formats, TheHighNibbleDoesNotChangeWhatTheLowOneMeans) {
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(f32_bits(e2m1_to_float(byte)), f32_bits(e2m1_to_float(e2m1_low(byte)))) << byte;
    EXPECT_EQ(e2m1_pack(e2m1_low(byte), e2m1_high(byte)), byte);
  }
}

TEST(Formats, Ue8m0RoundsUpToTheLeastPowerOfTwoThatHolds) {
  sweep_floats(4099, [](float x) {
    const double value = std::fabs(x);
    if (is_nan(x) || value > 0x1p127) return true;
    const int byte = float_to_ue8m0_up(std::fabs(x));
    const bool least =
        std::ldexp(1.0, byte - 127) >= value && (byte == 0 || std::ldexp(1.0, byte - 128) < value);
    EXPECT_TRUE(least) << "f32 0x" << std::hex << f32_bits(x) << " gives byte 0x" << byte;
    return least;
  });
}

TEST(Formats, ZeroAndValuesBeyondTheLastPowerGetTheFirstAndTheLastUe8m0) {
  EXPECT_EQ(float_to_ue8m0_up(0.0f), 0);
  EXPECT_EQ(float_to_ue8m0_up(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_ue8m0_up(std::numeric_limits<float>::max()), kUe8m0Max);
  EXPECT_TRUE(is_nan(ue8m0_to_float(kUe8m0NaN)));
}

TEST(Formats, TheUe8m0ReciprocalTimesTheScaleIsOne) {
  for (std::uint32_t byte = 0; byte <= kUe8m0Max; ++byte) {
    EXPECT_EQ(ue8m0_to_float(byte) * ue8m0_reciprocal(byte), 1.0f) << byte;
  }
  EXPECT_TRUE(is_nan(ue8m0_reciprocal(kUe8m0NaN)));
}

}  // namespace
}  // namespace megamoe::test
