// Every conversion against CUDA's headers, and the golden tables against them as well.
#include <cmath>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "numerics/cuda_oracle.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/f16.hpp"
#include "numerics/golden_check.hpp"
#include "numerics/sweep.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe::test {
namespace {

/// Succeeds where both decode every code below `codes` to the same bits, or both to NaN.
template <class Got, class Wanted>
::testing::AssertionResult same_on_every_code(std::uint32_t codes, Got got, Wanted wanted) {
  for (std::uint32_t code = 0; code < codes; ++code) {
    const float ours = got(code);
    const float theirs = wanted(code);
    if (is_nan(theirs) ? !is_nan(ours) : f32_bits(ours) != f32_bits(theirs)) {
      return ::testing::AssertionFailure() << std::hex << "code 0x" << code << ": got 0x"
                                           << f32_bits(ours) << ", wanted 0x" << f32_bits(theirs);
    }
  }
  return ::testing::AssertionSuccess();
}

float decode_bf16(std::uint32_t code) {
  return to_float(BFloat16{static_cast<std::uint16_t>(code)});
}
std::uint16_t encode_bf16(float value) {
  return to_bf16(value).bits;
}

/// UE8M0 has no sign: both sides see magnitudes.
std::uint8_t magnitude_to_ue8m0(float value) {
  return float_to_ue8m0_up(std::fabs(value));
}
std::uint8_t cuda_magnitude_to_ue8m0(float value) {
  return cuda::float_to_ue8m0_up(std::fabs(value));
}

TEST(CudaHeaders, EveryBf16DecodesToTheSameFloat) {
  EXPECT_TRUE(same_on_every_code(65536, decode_bf16, cuda::bf16_to_float));
}
TEST(CudaHeaders, EveryF16DecodesToTheSameFloat) {
  EXPECT_TRUE(same_on_every_code(65536, f16_to_float, cuda::f16_to_float));
}
TEST(CudaHeaders, EveryE4m3DecodesToTheSameFloat) {
  EXPECT_TRUE(same_on_every_code(256, e4m3_to_float, cuda::e4m3_to_float));
}
TEST(CudaHeaders, EveryE2m1DecodesToTheSameFloat) {
  EXPECT_TRUE(same_on_every_code(16, e2m1_to_float, cuda::e2m1_to_float));
}
TEST(CudaHeaders, EveryUe8m0DecodesToTheSameFloat) {
  EXPECT_TRUE(same_on_every_code(256, ue8m0_to_float, cuda::ue8m0_to_float));
}

TEST(CudaHeaders, FloatsRoundToTheSameBf16) {
  EXPECT_TRUE(same_on_every_swept_float(encode_bf16, cuda::float_to_bf16));
}
TEST(CudaHeaders, FloatsRoundToTheSameF16) {
  EXPECT_TRUE(same_on_every_swept_float(float_to_f16, cuda::float_to_f16));
}
TEST(CudaHeaders, FloatsRoundToTheSameE4m3) {
  EXPECT_TRUE(same_on_every_swept_float(float_to_e4m3, cuda::float_to_e4m3));
}
TEST(CudaHeaders, FloatsRoundToTheSameE2m1) {
  EXPECT_TRUE(same_on_every_swept_float(float_to_e2m1, cuda::float_to_e2m1));
}
TEST(CudaHeaders, MagnitudesRoundUpToTheSameUe8m0) {
  EXPECT_TRUE(same_on_every_swept_float(magnitude_to_ue8m0, cuda_magnitude_to_ue8m0));
}

TEST(CudaHeaders, TheGoldenEncodingsAreTheirs) {
  EXPECT_TRUE(encodes_as_golden(cuda::float_to_bf16, golden::kBf16Encoded));
  EXPECT_TRUE(encodes_as_golden(cuda::float_to_f16, golden::kF16Encoded));
  EXPECT_TRUE(encodes_as_golden(cuda::float_to_e4m3, golden::kE4m3Encoded));
  EXPECT_TRUE(encodes_as_golden(cuda::float_to_e2m1, golden::kE2m1Encoded));
  EXPECT_TRUE(encodes_as_golden(cuda_magnitude_to_ue8m0, golden::kUe8m0Encoded));
}

TEST(CudaHeaders, TheGoldenDecodingsAreTheirs) {
  EXPECT_TRUE(decodes_as_golden(cuda::bf16_to_float, kHalfDomain, golden::kBf16Decoded));
  EXPECT_TRUE(decodes_as_golden(cuda::f16_to_float, kHalfDomain, golden::kF16Decoded));
  EXPECT_TRUE(decodes_as_golden(cuda::e4m3_to_float, kByteDomain, golden::kE4m3Decoded));
  EXPECT_TRUE(decodes_as_golden(cuda::e2m1_to_float, kNibbleDomain, golden::kE2m1Decoded));
  EXPECT_TRUE(decodes_as_golden(cuda::ue8m0_to_float, kByteDomain, golden::kUe8m0Decoded));
}

}  // namespace
}  // namespace megamoe::test
