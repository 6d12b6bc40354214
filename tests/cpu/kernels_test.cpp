// Which table a process gets, and the panels and products of every table.
#include "cpu/kernels.hpp"

#include <string>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "base/names.hpp"
#include "cpu/kernel_cases.hpp"
#include "cpu/kernel_tables.hpp"

namespace megamoe {
namespace {

using test::accumulate_rows;
using test::make_packed;
using test::make_rows;
using test::PackedCase;
using test::Random;
using test::RowsCase;
using test::same_value;

constexpr WeightFormat kWeightFormats[] = {WeightFormat::fp4, WeightFormat::fp8,
                                           WeightFormat::bf16};
constexpr PanelFormat kPanelFormats[] = {PanelFormat::bf16, PanelFormat::e4m3_ue8m0_32,
                                         PanelFormat::e4m3_f32_128, PanelFormat::e4m3_ue8m0_128};
constexpr InstructionSetFlags kScalarOnly{true, false, false};
constexpr InstructionSetFlags kScalarAndAvx2{true, true, false};
constexpr InstructionSetFlags kAll{true, true, true};

TEST(InstructionSets, TheBestIsTheWidestThatTheMachineHas) {
  EXPECT_EQ(best_instruction_set(kScalarOnly), InstructionSet::scalar);
  EXPECT_EQ(best_instruction_set(kScalarAndAvx2), InstructionSet::avx2);
  EXPECT_EQ(best_instruction_set(kAll), InstructionSet::avx512);
  EXPECT_TRUE(has_instruction_set(best_instruction_set()));
  EXPECT_TRUE(has_instruction_set(InstructionSet::scalar));
}

TEST(InstructionSets, OneThatTheMachineLacksIsRefusedByName) {
  try {
    vector_kernels(InstructionSet::avx512, kScalarAndAvx2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("avx512 is wanted"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("avx2, scalar"), std::string::npos) << error.what();
  }
}

class EveryTable : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!has_instruction_set(GetParam())) {
      GTEST_SKIP() << "this machine lacks " << name_of(GetParam());
    }
  }
  const VectorKernels& kernels() const { return vector_kernels(GetParam()); }
  /// Products and sums of one row agree with f64 as far as rounding allows.
  void expect_close(const RowsCase& rows, const PackedCase& packed, const std::vector<float>& sums);
};

TEST_P(EveryTable, NamesItsSet) {
  EXPECT_EQ(kernels().instruction_set, GetParam());
}

/// The panel's value of one row and column.
float panel_at(const VectorKernels& kernels, const std::vector<float>& panel, std::int64_t rows,
               std::int64_t columns, std::int64_t row, std::int64_t column) {
  const std::int64_t first = row / kernels.row_group * kernels.row_group;
  const std::int64_t in_group = min64(kernels.row_group, rows - first);
  return panel[static_cast<std::size_t>(first * columns + column * in_group + row - first)];
}

TEST_P(EveryTable, PanelsHoldEveryValueTimesItsScaleAndZeroBeyondTheMatrix) {
  Random random(1);
  for (const PanelFormat format : kPanelFormats) {
    for (std::int64_t rows = 1; rows <= 30; ++rows) {
      const RowsCase source = make_rows(random, format, rows, 97 + 17 * rows);
      for (std::int64_t first = 0; first < source.columns; first += 256) {
        PanelSource part = source.source();
        part.first_column = first;
        part.columns = 256;  // the last panel may reach beyond the matrix by a whole chunk
        std::vector<float> panel(static_cast<std::size_t>(rows * 256 + 1), -7.0f);
        kernels().load_panel(part, panel.data());
        ASSERT_EQ(panel.back(), -7.0f) << "more than rows * columns written";
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t c = 0; c < 256; ++c) {
            const float want = first + c < source.columns ? source.at(row, first + c) : 0.0f;
            const float got = panel_at(kernels(), panel, rows, 256, row, c);
            ASSERT_EQ(f32_bits(got), f32_bits(want))
                << "format " << static_cast<int>(format) << " rows " << rows << " row " << row
                << " column " << first + c << ": " << got << " for " << want;
          }
        }
      }
    }
  }
}

TEST_P(EveryTable, PanelsDecodeEveryE4m3ByteUnderEveryUe8m0Scale) {
  for (int scale = 0; scale < 256; ++scale) {
    std::vector<std::byte> values(256);
    for (std::size_t i = 0; i < 256; ++i) values[i] = std::byte{static_cast<std::uint8_t>(i)};
    const std::vector<std::byte> scales(8, std::byte{static_cast<std::uint8_t>(scale)});
    std::vector<float> panel(256);
    kernels().load_panel({.format = PanelFormat::e4m3_ue8m0_32,
                          .values = values.data(),
                          .row_stride_bytes = 256,
                          .scales = scales.data(),
                          .scale_row_stride_bytes = 8,
                          .rows = 1,
                          .first_column = 0,
                          .columns = 256,
                          .valid_columns = 256},
                         panel.data());
    for (std::size_t i = 0; i < 256; ++i) {
      const float want = e4m3_to_float(static_cast<std::uint8_t>(i)) *
                         ue8m0_to_float(static_cast<std::uint8_t>(scale));
      ASSERT_TRUE(same_value(panel[i], want))
          << "byte " << i << " scale " << scale << ": " << panel[i] << " for " << want;
    }
  }
}

void EveryTable::expect_close(const RowsCase& rows, const PackedCase& packed,
                              const std::vector<float>& sums) {
  std::size_t next = 0;
  for (std::int64_t strip = 0; strip < packed.shape.strips; ++strip) {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
        double want = 0.0;
        double magnitudes = 0.0;
        for (std::int64_t c = 0; c < rows.columns; ++c) {
          const double product = double{rows.at(row, c)} * packed.value(strip, lane, c);
          want += product;
          magnitudes += std::fabs(product);
        }
        // Each addition errs by half an ulp of a sum that the magnitudes bound.
        const double bound =
            magnitudes * 0x1p-24 * static_cast<double>(kChunkColumns + 2 * rows.columns / 32 + 8);
        const float got = sums[next++];
        ASSERT_LE(std::fabs(got - want), bound)
            << "weights " << static_cast<int>(packed.shape.format) << " panel "
            << static_cast<int>(rows.format) << " rows " << rows.rows << " strip " << strip
            << " row " << row << " lane " << lane << ": " << got << " for " << want;
      }
    }
  }
}

TEST_P(EveryTable, ProductsAgreeWithF64ForEveryFormatAndNumberOfRows) {
  Random random(2);
  for (const WeightFormat format : kWeightFormats) {
    for (std::int64_t rows = 1; rows <= 30; ++rows) {
      const PanelFormat panel = kPanelFormats[rows % 4];
      const std::int64_t chunks = 1 + rows % 3;
      const PackedCase packed = make_packed(random, format, 1 + rows % 9, chunks);
      const RowsCase source = make_rows(random, panel, rows, chunks * kChunkColumns - rows);
      expect_close(source, packed, accumulate_rows(kernels(), source, packed, chunks));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryTable, EveryPanelFormatMeetsEveryWeightFormat) {
  Random random(3);
  for (const WeightFormat format : kWeightFormats) {
    for (const PanelFormat panel : kPanelFormats) {
      const PackedCase packed = make_packed(random, format, 3, 2);
      const RowsCase source = make_rows(random, panel, 5, 2 * kChunkColumns);
      expect_close(source, packed, accumulate_rows(kernels(), source, packed, 2));
      if (HasFatalFailure()) return;
    }
  }
}

/// One row alone.
RowsCase single_row(const RowsCase& rows, std::int64_t row) {
  RowsCase alone = rows;
  alone.rows = 1;
  alone.values.erase(alone.values.begin(), alone.values.begin() + row * rows.row_stride_bytes);
  alone.scales.erase(alone.scales.begin(),
                     alone.scales.begin() + min64(row * rows.scale_row_stride_bytes,
                                                  static_cast<std::int64_t>(rows.scales.size())));
  return alone;
}

TEST_P(EveryTable, ARowsBitsDependNeitherOnTheOtherRowsNorOnHowColumnsAreCut) {
  Random random(4);
  constexpr std::int64_t kStrips = 3;
  for (const WeightFormat format : kWeightFormats) {
    for (const std::int64_t rows : {2, 3, 5, 12, 13, 30}) {
      const PackedCase packed = make_packed(random, format, kStrips, 3);
      const RowsCase source = make_rows(random, kPanelFormats[rows % 4], rows, 3 * kChunkColumns);
      const std::vector<float> together = accumulate_rows(kernels(), source, packed, 3);
      const std::vector<float> cut = accumulate_rows(kernels(), source, packed, 1);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::vector<float> alone =
            accumulate_rows(kernels(), single_row(source, row), packed, 2);
        for (std::int64_t i = 0; i < kStrips * kStripLanes; ++i) {
          const auto at = static_cast<std::size_t>((i / kStripLanes * rows + row) * kStripLanes +
                                                   i % kStripLanes);
          const std::uint32_t want = f32_bits(alone[static_cast<std::size_t>(i)]);
          ASSERT_EQ(f32_bits(together[at]), want)
              << "weights " << static_cast<int>(format) << " rows " << rows << " row " << row
              << " output " << i << " together";
          ASSERT_EQ(f32_bits(cut[at]), want) << "weights " << static_cast<int>(format) << " rows "
                                             << rows << " row " << row << " output " << i << " cut";
        }
      }
    }
  }
}

TEST_P(EveryTable, ANaNInOneRowStaysInThatRow) {
  Random random(5);
  for (const WeightFormat format : kWeightFormats) {
    for (const std::int64_t rows : {1, 4, 12, 29}) {
      const PackedCase packed = make_packed(random, format, 2, 2);
      RowsCase source = make_rows(random, PanelFormat::e4m3_ue8m0_32, rows, 2 * kChunkColumns);
      const std::int64_t poisoned = rows / 2;
      source.values[static_cast<std::size_t>(poisoned * source.row_stride_bytes + 77)] =
          std::byte{0xFF};
      const std::vector<float> sums = accumulate_rows(kernels(), source, packed, 2);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / kStripLanes % rows;
        ASSERT_EQ(is_nan(sums[i]), row == poisoned)
            << "weights " << static_cast<int>(format) << " rows " << rows << " row " << row
            << " output " << i % kStripLanes;
      }
    }
  }
}

/// What a weight is worth: one column of ones against a chunk that is `code` at `column` of every
/// lane. `rows` decides which of the kernel's ways is taken.
std::vector<float> decode(const VectorKernels& kernels, PackedCase& packed, std::int64_t column,
                          std::uint32_t code, std::int64_t rows) {
  std::byte* chunk = packed.chunk(0, 0);
  for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
    test::put_code(chunk, packed.shape.format, lane, column, code);
  }
  std::vector<float> panel(static_cast<std::size_t>(rows * kChunkColumns), 1.0f);
  std::vector<float> sums(static_cast<std::size_t>(kernels.padded_rows(rows) * kStripLanes));
  kernels.accumulate({.format = packed.shape.format,
                      .weights = packed.bytes.data(),
                      .strip_stride_bytes = packed.shape.strip_bytes(),
                      .strips = 1,
                      .chunks = 1,
                      .panel = panel.data(),
                      .rows = rows,
                      .sums = sums.data()});
  sums.resize(static_cast<std::size_t>(rows * kStripLanes));
  return sums;
}

PackedCase zero_chunk(WeightFormat format) {
  PackedCase packed{{format, 1, 1}, {}, {}};
  packed.bytes.assign(static_cast<std::size_t>(chunk_bytes(format)), std::byte{0});
  for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
    for (std::int64_t c = 0; c < kChunkColumns; c += 32) {
      std::byte* scale = packed.bytes.data() + scale_offset(format, lane, c);
      if (format == WeightFormat::fp4) *scale = std::byte{kUe8m0One};
      if (format == WeightFormat::fp8) test::put(scale, 1.0f);
    }
  }
  return packed;
}

TEST_P(EveryTable, EveryE2m1AndE4m3CodeIsDecodedExactlyInEveryColumnOfAWord) {
  for (const std::int64_t rows : {1, 5, 14}) {
    for (std::int64_t column = 0; column < 8; ++column) {
      for (std::uint32_t code = 0; code < 16; ++code) {
        PackedCase packed = zero_chunk(WeightFormat::fp4);
        for (const float got : decode(kernels(), packed, column + 64, code, rows)) {
          ASSERT_EQ(got, e2m1_to_float(static_cast<std::uint8_t>(code)))
              << "code " << code << " column " << column << " rows " << rows;
        }
      }
    }
    for (std::int64_t column = 0; column < 4; ++column) {
      for (std::uint32_t code = 0; code < 256; ++code) {
        PackedCase packed = zero_chunk(WeightFormat::fp8);
        for (const float got : decode(kernels(), packed, column + 36, code, rows)) {
          const float want = e4m3_to_float(static_cast<std::uint8_t>(code)) + 0.0f;
          ASSERT_TRUE(same_value(got, want)) << "code " << code << " column " << column << " rows "
                                             << rows << ": " << got << " for " << want;
        }
      }
    }
  }
}

TEST_P(EveryTable, EveryUe8m0ScaleOfTheWeightsCounts) {
  for (const std::int64_t rows : {1, 5, 14}) {
    for (int scale = 0; scale < 256; ++scale) {
      PackedCase packed = zero_chunk(WeightFormat::fp4);
      for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
        packed.bytes[static_cast<std::size_t>(scale_offset(WeightFormat::fp4, lane, 32))] =
            std::byte{static_cast<std::uint8_t>(scale)};
      }
      const float want = 0.5f * ue8m0_to_float(static_cast<std::uint8_t>(scale));
      for (const float got : decode(kernels(), packed, 33, 1, rows)) {
        ASSERT_TRUE(same_value(got, want))
            << "scale " << scale << " rows " << rows << ": " << got << " for " << want;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryTable,
                         testing::Values(InstructionSet::scalar, InstructionSet::avx2,
                                         InstructionSet::avx512),
                         [](const testing::TestParamInfo<InstructionSet>& tested) {
                           return std::string(name_of(tested.param));
                         });

TEST(VectorTables, HaveTheSameBitsInProducts) {
  if (!has_instruction_set(InstructionSet::avx512)) GTEST_SKIP() << "this machine lacks avx512";
  Random random(6);
  for (const WeightFormat format : kWeightFormats) {
    for (const std::int64_t rows : {1, 2, 6, 7, 13, 30}) {
      const PackedCase packed = make_packed(random, format, 2, 2);
      const RowsCase source = make_rows(random, kPanelFormats[rows % 4], rows, 2 * kChunkColumns);
      const std::vector<float> narrow =
          accumulate_rows(vector_kernels(InstructionSet::avx2), source, packed, 2);
      const std::vector<float> wide =
          accumulate_rows(vector_kernels(InstructionSet::avx512), source, packed, 2);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        ASSERT_EQ(f32_bits(narrow[i]), f32_bits(wide[i]))
            << "weights " << static_cast<int>(format) << " rows " << rows << " sum " << i;
      }
    }
  }
}

}  // namespace
}  // namespace megamoe
