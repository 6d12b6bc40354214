// What follows the products: every table has the bits of numerics/.
#include <string>

#include <gtest/gtest.h>

#include "base/names.hpp"
#include "cpu/kernel_cases.hpp"
#include "cpu/kernels.hpp"
#include "numerics/block_scale.hpp"

namespace megamoe {
namespace {

using test::draw;
using test::draw_float;
using test::Random;
using test::same_value;

class Epilogues : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!has_instruction_set(GetParam())) {
      GTEST_SKIP() << "this machine lacks " << name_of(GetParam());
    }
  }
  const VectorKernels& kernels() const { return vector_kernels(GetParam()); }
};

std::vector<float> draw_floats(Random& random, std::int64_t count, int binades) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = draw_float(random, binades);
  return values;
}

/// Puts special values, and ties of the rounding to bf16, at random places.
void season(Random& random, std::vector<float>& values) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,
                           -0.0f,
                           kInfinity,
                           -kInfinity,
                           std::numeric_limits<float>::quiet_NaN(),
                           f32_from_bits(0xFFC0'1234u),
                           f32_from_bits(0x7F80'0001u),
                           f32_from_bits(0x3F80'8000u),
                           f32_from_bits(0x3F81'8000u),
                           f32_from_bits(0xC0A0'8000u),
                           3.4e38f,
                           1e-40f,
                           7.0f,
                           -7.0f,
                           -88.0f,
                           104.0f};
  for (const float value : special) {
    values[static_cast<std::size_t>(
        draw(random, 0, static_cast<std::int64_t>(values.size()) - 1))] = value;
  }
}

constexpr std::int64_t kStrips = 5;
constexpr std::int64_t kRows = 7;
constexpr std::int64_t kPaddedRows = 12;
constexpr std::int64_t kStride = kStrips * kHalfStripLanes + 3;

/// One value as the contract says.
float expected_activation(const ActivateArguments& a, std::int64_t row, std::int64_t column) {
  const std::int64_t lane = column % kHalfStripLanes;
  const float* sums =
      a.sums + (column / kHalfStripLanes * a.padded_rows + row) * kStripLanes + lane;
  float gate = sums[0];
  float up = sums[kHalfStripLanes];
  if (a.gate_bias != nullptr) gate += a.gate_bias[column];
  if (a.up_bias != nullptr) up += a.up_bias[column];
  return activate(a.rule, to_float(to_bf16(gate)), to_float(to_bf16(up))) * a.row_weights[row];
}

TEST_P(Epilogues, ActivationsHaveTheBitsOfTheScalarRule) {
  Random random(1);
  const ActivationRule rules[] = {make_activation_rule(Activation::swiglu, {}),
                                  make_activation_rule(Activation::swiglu, 2.5f),
                                  make_activation_rule(Activation::swiglu_oai, {})};
  const std::vector<float> biases = draw_floats(random, 2 * kStrips * kHalfStripLanes, 4);
  const std::vector<float> weights = draw_floats(random, kRows, 6);
  for (const ActivationRule& rule : rules) {
    for (const int binades : {4, 14, 60}) {
      for (const bool biased : {false, true}) {
        std::vector<float> sums = draw_floats(random, kStrips * kPaddedRows * kStripLanes, binades);
        season(random, sums);
        std::vector<float> activations(kRows * kStride, -3.0f);
        const ActivateArguments arguments{
            .sums = sums.data(),
            .strips = kStrips,
            .padded_rows = kPaddedRows,
            .rows = kRows,
            .gate_bias = biased ? biases.data() : nullptr,
            .up_bias = biased ? biases.data() + kStrips * kHalfStripLanes : nullptr,
            .row_weights = weights.data(),
            .rule = rule,
            .activations = activations.data(),
            .activation_stride = kStride};
        kernels().activate(arguments);
        for (std::int64_t i = 0; i < kRows * kStride; ++i) {
          const bool written = i % kStride < kStrips * kHalfStripLanes;
          const float want =
              written ? expected_activation(arguments, i / kStride, i % kStride) : -3.0f;
          const float got = activations[static_cast<std::size_t>(i)];
          ASSERT_TRUE(same_value(got, want))
              << "row " << i / kStride << " column " << i % kStride << " biased " << biased << ": "
              << got << " for " << want;
        }
      }
    }
  }
}

/// Rows whose groups differ in kind: finite, tiny, zero of either sign, with an infinity, with a
/// NaN.
std::vector<float> groups_to_quantise(Random& random, std::int64_t stride) {
  std::vector<float> values = draw_floats(random, kRows * stride, 24);
  const auto row = [&](std::int64_t r) { return values.begin() + r * stride; };
  for (std::int64_t c = 0; c < stride; ++c) {
    row(1)[c] *= 0x1p-126f;
    row(2)[c] = c % 2 == 0 ? 0.0f : -0.0f;
    row(5)[c] *= 0x1p115f;
  }
  row(3)[draw(random, 0, 0)] = -std::numeric_limits<float>::infinity();
  row(4)[0] = std::numeric_limits<float>::quiet_NaN();
  row(6)[0] = 448.0f * 0x1p3f;
  return values;
}

TEST_P(Epilogues, QuantisingHasTheBitsOfTheScalarQuantiser) {
  Random random(2);
  constexpr std::int64_t kValueStride = 131;
  constexpr std::int64_t kRowBytes = 300;
  for (const std::int64_t columns : {1, 7, 16, 31, 64, 100, 127, 128}) {
    const std::vector<float> values = groups_to_quantise(random, kValueStride);
    std::vector<std::byte> bytes(kRows * kRowBytes, std::byte{0x55});
    std::vector<std::byte> scales(kRows * 3, std::byte{0x55});
    kernels().quantise({.values = values.data(),
                        .value_stride = kValueStride,
                        .rows = kRows,
                        .columns = columns,
                        .bytes = bytes.data(),
                        .row_stride_bytes = kRowBytes,
                        .scales = scales.data(),
                        .scale_row_stride_bytes = 3});
    std::vector<std::byte> want_bytes(bytes.size(), std::byte{0x55});
    std::vector<std::byte> want_scales(scales.size(), std::byte{0x55});
    for (std::int64_t row = 0; row < kRows; ++row) {
      quantise_e4m3_group(values.data() + row * kValueStride, columns,
                          reinterpret_cast<std::uint8_t*>(want_bytes.data()) + row * kRowBytes,
                          reinterpret_cast<std::uint8_t*>(want_scales.data())[3 * row]);
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      ASSERT_EQ(scales[i], want_scales[i]) << "columns " << columns << " scale " << i;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(bytes[i], want_bytes[i])
          << "columns " << columns << " row " << i / kRowBytes << " byte " << i % kRowBytes;
    }
  }
}

TEST_P(Epilogues, AFinishedRowIsTheSumPlusTheWeightedBiasRoundedOnce) {
  Random random(3);
  constexpr std::int64_t kStripStride = 4 * kStripLanes;
  for (const std::int64_t columns : {1, 15, 32, 50, 96, 127}) {
    for (const bool biased : {false, true}) {
      std::vector<float> sums = draw_floats(random, 4 * kStripStride, 30);
      season(random, sums);
      const std::vector<float> bias = draw_floats(random, columns, 30);
      std::vector<BFloat16> out(static_cast<std::size_t>(columns + 1), BFloat16{0x5555});
      constexpr float kWeight = 0.3f;
      kernels().finish_row({.sums = sums.data(),
                            .strip_stride = kStripStride,
                            .columns = columns,
                            .bias = biased ? bias.data() : nullptr,
                            .weight = kWeight,
                            .out = out.data()});
      ASSERT_EQ(out.back().bits, 0x5555) << "written beyond column " << columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<std::size_t>(c / kStripLanes * kStripStride + c % kStripLanes);
        float want = sums[at];
        if (biased) want += kWeight * bias[static_cast<std::size_t>(c)];
        ASSERT_EQ(out[static_cast<std::size_t>(c)].bits, to_bf16(want).bits)
            << "columns " << columns << " biased " << biased << " column " << c;
      }
    }
  }
}

TEST_P(Epilogues, CombineAddsSlotsInOrderInF32AndRoundsOnce) {
  Random random(4);
  for (const std::int64_t slots : {0, 1, 2, 8}) {
    for (const std::int64_t columns : {1, 16, 77, 128}) {
      std::vector<std::vector<BFloat16>> rows;
      std::vector<const BFloat16*> pointers;
      for (std::int64_t slot = 0; slot < slots; ++slot) {
        std::vector<float> values = draw_floats(random, columns, 16);
        if (slot == 0 && columns > 64) season(random, values);
        std::vector<BFloat16> row;
        for (const float value : values) row.push_back(to_bf16(value));
        rows.push_back(row);
      }
      for (const std::vector<BFloat16>& row : rows) pointers.push_back(row.data());
      std::vector<BFloat16> y(static_cast<std::size_t>(columns + 1), BFloat16{0x5555});
      kernels().combine(
          {.slots = pointers.data(), .slot_count = slots, .columns = columns, .y = y.data()});
      ASSERT_EQ(y.back().bits, 0x5555) << "written beyond column " << columns;
      for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
        float want = 0.0f;
        for (const std::vector<BFloat16>& row : rows) want += to_float(row[c]);
        ASSERT_EQ(y[c].bits, to_bf16(want).bits)
            << "slots " << slots << " columns " << columns << " column " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Epilogues,
                         testing::Values(InstructionSet::scalar, InstructionSet::avx2,
                                         InstructionSet::avx512),
                         [](const testing::TestParamInfo<InstructionSet>& tested) {
                           return std::string(name_of(tested.param));
                         });

}  // namespace
}  // namespace megamoe
