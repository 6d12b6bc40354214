#include "layout/weight_strips.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace megamoe {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::fp4, WeightFormat::fp8, WeightFormat::bf16};

constexpr std::int64_t value_bits(WeightFormat format) {
  return 32 / columns_per_word(format);
}

static_assert(value_bits(WeightFormat::fp4) == 4 && value_bits(WeightFormat::fp8) == 8 &&
              value_bits(WeightFormat::bf16) == 16);
static_assert(chunk_bytes(WeightFormat::fp4) == 128 + 128 * 32 / 2);
static_assert(chunk_bytes(WeightFormat::fp8) == 128 + 128 * 32);
static_assert(chunk_bytes(WeightFormat::bf16) == 128 * 32 * 2);

/// The bit of the chunk where the value begins: the lowest column is the least significant part.
std::int64_t first_bit(WeightFormat format, std::int64_t lane, std::int64_t column) {
  return word_offset(format, lane, column) * 8 +
         column % columns_per_word(format) * value_bits(format);
}

/// Counts how often each bit of a chunk is taken, by a value or by a scale.
class Chunk {
 public:
  explicit Chunk(WeightFormat format) : taken_(static_cast<std::size_t>(chunk_bytes(format) * 8)) {}

  void take(std::int64_t bit, std::int64_t bits) {
    for (std::int64_t b = bit; b < bit + bits; ++b) ++taken_.at(static_cast<std::size_t>(b));
  }
  /// The first bit that is not taken exactly once; -1 if there is none.
  std::int64_t first_wrong() const {
    for (std::size_t b = 0; b < taken_.size(); ++b) {
      if (taken_[b] != 1) return static_cast<std::int64_t>(b);
    }
    return -1;
  }

 private:
  std::vector<int> taken_;
};

TEST(WeightStrips, ValuesAndScalesFillAChunkAndNothingLiesTwiceInOnePlace) {
  for (WeightFormat format : kFormats) {
    Chunk chunk(format);
    for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
      for (std::int64_t column = 0; column < kChunkColumns; ++column) {
        chunk.take(first_bit(format, lane, column), value_bits(format));
        if (format == WeightFormat::fp4 && column % 32 == 0) {
          chunk.take(scale_offset(format, lane, column) * 8, 8);
        }
        if (format == WeightFormat::fp8 && column == 0) {
          chunk.take(scale_offset(format, lane, column) * 8, 32);
        }
      }
    }
    EXPECT_EQ(chunk.first_wrong(), -1) << "format " << static_cast<int>(format);
  }
}

TEST(WeightStrips, ColumnsOfOneGroupShareTheirScale) {
  for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
    for (std::int64_t column = 0; column < kChunkColumns; ++column) {
      ASSERT_EQ(scale_offset(WeightFormat::fp4, lane, column),
                scale_offset(WeightFormat::fp4, lane, column / 32 * 32))
          << "lane " << lane << " column " << column;
      ASSERT_EQ(scale_offset(WeightFormat::fp8, lane, column),
                scale_offset(WeightFormat::fp8, lane, 0))
          << "lane " << lane << " column " << column;
    }
  }
}

TEST(WeightStrips, AHalfStripIsOneAlignedCacheLineInLaneOrder) {
  for (WeightFormat format : kFormats) {
    for (std::int64_t column = 0; column < kChunkColumns; ++column) {
      for (std::int64_t half = 0; half < 2; ++half) {
        const std::int64_t line = word_offset(format, half * kHalfStripLanes, column);
        ASSERT_EQ(line % 64, 0) << "column " << column << " half " << half;
        for (std::int64_t lane = 0; lane < kHalfStripLanes; ++lane) {
          ASSERT_EQ(word_offset(format, half * kHalfStripLanes + lane, column), line + 4 * lane)
              << "column " << column << " half " << half << " lane " << lane;
        }
      }
    }
  }
}

TEST(WeightStrips, AChunkIsReadForwardAsColumnsAscend) {
  for (WeightFormat format : kFormats) {
    EXPECT_EQ(word_offset(format, 0, 0), chunk_header_bytes(format));
    for (std::int64_t column = 1; column < kChunkColumns; ++column) {
      const bool next_word = column % columns_per_word(format) == 0;
      ASSERT_EQ(word_offset(format, 0, column) - word_offset(format, 0, column - 1),
                next_word ? kStripLanes * 4 : 0)
          << "column " << column;
    }
  }
}

TEST(WeightStrips, RowsAndColumnsBeyondTheMatrixArePaddedToWholeStripsAndChunks) {
  for (WeightFormat format : kFormats) {
    const StripShape first = gemm1_strips(format, 129, 17);
    EXPECT_EQ(first.strips, 2);
    EXPECT_EQ(first.chunks, 2);
    const StripShape second = gemm2_strips(format, 129, 17);
    EXPECT_EQ(second.strips, 5);
    EXPECT_EQ(second.chunks, 1);
    EXPECT_EQ(second.bytes(), 5 * chunk_bytes(format));
    EXPECT_EQ(second.strip_bytes() * second.strips, second.bytes());
  }
  EXPECT_EQ(gemm1_strips(WeightFormat::fp4, 128, 16).bytes(), 2176);
  EXPECT_EQ(gemm2_strips(WeightFormat::fp8, 32, 128).bytes(), 4224);
}

TEST(WeightStrips, TheLargestMatrixIsCountedInSixtyFourBits) {
  constexpr std::int64_t kFeatures = std::int64_t{1} << 20;
  for (WeightFormat format : kFormats) {
    const __int128 wanted =
        __int128{kFeatures / 16} * (kFeatures / 128) * static_cast<__int128>(chunk_bytes(format));
    EXPECT_TRUE(__int128{gemm1_strips(format, kFeatures, kFeatures).bytes()} == wanted);
    EXPECT_TRUE(__int128{gemm2_strips(format, kFeatures, kFeatures).bytes()} * 2 == wanted);
  }
}

}  // namespace
}  // namespace megamoe
