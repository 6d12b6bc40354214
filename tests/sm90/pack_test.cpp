// Packing and planning, without a GPU.
#include "sm90/pack.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "layer_data.hpp"
#include "layout/weight_matrix.hpp"
#include "plan/sm90_plan.hpp"

namespace megamoe::test {
namespace {

using namespace megamoe::sm90;

Fp4Matrix as_fp4(const MatrixView& m) {
  return {reinterpret_cast<const std::uint8_t*>(m.values),
          m.row_stride_bytes,
          reinterpret_cast<const std::uint8_t*>(m.scales),
          m.scale_row_stride_bytes,
          m.rows,
          m.columns};
}

/// A tile packed as the kernel packs it.
std::vector<std::uint8_t> packed_tile(const PackSource& source, std::int64_t row_tile,
                                      std::int64_t column_tile) {
  std::vector<std::uint8_t> tile(kWeightTileBytes, 0xAA);
  for (int row = 0; row < kTileRows; ++row) {
    const std::int64_t packed_row = row_tile * kTileRows + row;
    const std::int32_t largest = largest_scale(source, packed_row);
    for (int i = 0; i < 16; ++i) {
      const TileCell cell{row, i / 4 * 32 + i % 4 * 4};
      const PackedWord word =
          pack_word(source, packed_row, column_tile * kTileColumns, cell, largest);
      std::memcpy(&tile[word_offset(cell)], &word.word, 4);
    }
    for (int g = 0; g < 4; ++g) {
      const TileCell cell{row, g * kScaleGroup};
      tile[scale_offset(cell)] =
          pack_step(source, packed_row, column_tile * kTileColumns + cell.column, largest);
    }
  }
  return tile;
}

/// The value of a cell as the kernel decodes it.
double decoded(const std::vector<std::uint8_t>& tile, const TileCell& cell, float factor) {
  std::uint32_t word = 0;
  std::memcpy(&word, &tile[word_offset(cell)], 4);
  const std::uint32_t magnitude = word >> magnitude_bit(cell) & 7u;
  const std::uint32_t sign = word >> sign_bit(cell) & 1u;
  const int step = tile[scale_offset(cell)];
  return std::ldexp(e2m1_to_float(static_cast<std::uint8_t>(magnitude)), step - 5) *
         (sign != 0 ? -1.0 : 1.0) * factor;
}

TEST(PackedWeights, WordsAndScalesFillATileExactly) {
  std::set<int> words;
  std::set<int> scales;
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      const TileCell cell{row, column};
      words.insert(word_offset(cell));
      scales.insert(scale_offset(cell));
    }
  }
  EXPECT_EQ(words.size(), 2u * kSlabBytes / 4);
  EXPECT_EQ(*words.rbegin(), 2 * kSlabBytes - 4);
  EXPECT_EQ(scales.size(), 512u);
  EXPECT_EQ(*scales.begin(), 2 * kSlabBytes);
  EXPECT_EQ(*scales.rbegin(), kWeightTileBytes - 1);
}

TEST(PackedWeights, ValuesSurviveTwelveBinadesExactly) {
  Random random(31);
  MatrixData data;
  const MatrixView m = random_fp4(random, 128, 256, 100, 12, data);
  const PackSource source{as_fp4(m), {}};
  for (int column_tile = 0; column_tile < 2; ++column_tile) {
    const auto tile = packed_tile(source, 0, column_tile);
    for (int row = 0; row < 128; ++row) {
      const float factor = row_factor(largest_scale(source, row));
      for (int column = 0; column < 128; ++column) {
        ASSERT_EQ(decoded(tile, {row, column}, factor),
                  value_at(m, row, column_tile * 128 + column))
            << row << ", " << column;
      }
    }
  }
}

TEST(PackedFp8Weights, BytesAndScalesFillATileExactly) {
  std::set<int> bytes;
  std::set<int> scales;
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      bytes.insert(fp8_offset({row, column}));
      scales.insert(fp8_scale_offset({row, column}));
    }
  }
  EXPECT_EQ(bytes.size(), 2u * kFp8SlabBytes);
  EXPECT_EQ(*bytes.rbegin(), 2 * kFp8SlabBytes - 1);
  EXPECT_EQ(scales, (std::set<int>{2 * kFp8SlabBytes, 2 * kFp8SlabBytes + 4}));
}

TEST(PackedFp8Weights, GateAndUpKeepTheirValuesAndTheScalesOfTheirOwnGrids) {
  Random random(41);
  MatrixData gate_data;
  MatrixData up_data;
  // Neither size a multiple of 128.
  const MatrixView gate = random_fp8(random, 160, 200, gate_data);
  const MatrixView up = random_fp8(random, 160, 200, up_data);
  const auto view = [](const MatrixView& m) {
    return Fp8Matrix{reinterpret_cast<const std::uint8_t*>(m.values),
                     m.row_stride_bytes,
                     reinterpret_cast<const float*>(m.scales),
                     m.scale_row_stride_bytes / 4,
                     m.rows,
                     m.columns};
  };
  const Fp8PackSource source{view(gate), view(up)};
  for (std::int64_t p = 0; p < 512; ++p) {
    const SourceRow from = gemm1_source(p);
    const MatrixView& m = from.up ? up : gate;
    for (std::int64_t column = 0; column < 256; column += 4) {
      const TileCell cell{static_cast<int>(p % 128), static_cast<int>(column % 128)};
      const std::uint32_t word = pack_fp8_word(source, p, column / 128 * 128, cell);
      const float scale = pack_fp8_scale(source, p, column / 128 * 128);
      for (std::int64_t b = 0; b < 4; ++b) {
        const bool inside = from.row < 160 && column + b < 200;
        const auto byte = static_cast<std::uint8_t>(word >> (8 * b));
        ASSERT_EQ(inside ? e4m3_to_float(byte) * double{scale} : byte,
                  inside ? value_at(m, from.row, column + b) : 0.0)
            << p << ", " << column + b;
      }
    }
  }
}

TEST(PackedWeights, GateAndUpOfAnIntermediateMeetInOneThread) {
  std::set<std::int64_t> seen;
  for (std::int64_t p = 0; p < 512; ++p) {
    const SourceRow row = gemm1_source(p);
    seen.insert(row.row * 2 + (row.up ? 1 : 0));
    if (p % 16 < 8) {
      EXPECT_EQ(gemm1_source(p + 8).row, row.row);
      EXPECT_TRUE(gemm1_source(p + 8).up);
    }
  }
  EXPECT_EQ(seen.size(), 512u);
  EXPECT_EQ(*seen.rbegin(), 511);
}

TEST(PackedWeights, RoundsWhatIsTooSmallForItsRow) {
  Random random(32);
  MatrixData data;
  const MatrixView m = random_fp4(random, 128, 128, 100, 1, data);
  data.scales[0] = std::byte{90};
  data.scales[1] = std::byte{102};
  const PackSource source{as_fp4(m), {}};
  const auto tile = packed_tile(source, 0, 0);
  const float factor = row_factor(largest_scale(source, 0));
  const double unit = std::ldexp(1.0, 102 - 11 - 127);
  for (int column = 0; column < 32; ++column) {
    EXPECT_NEAR(decoded(tile, {0, column}, factor), value_at(m, 0, column), 0.25 * unit);
  }
}

TEST(GpuPlan, EveryShapeOfTheFieldFitsSharedMemory) {
  for (const std::int64_t hidden : {2880, 4096, 5120, 7168}) {
    for (const KernelShape& shape : kKernelShapes) {
      const SharedLayout layout = best_shared_layout(shape, hidden, 48, 8);
      EXPECT_GE(layout.stages, 4) << hidden << ", " << shape.tokens;
      EXPECT_LE(layout.bytes, kMaxSharedBytes);
    }
  }
}

TEST(GpuPlan, TheTokenTileHoldsAnExpertsRowsInFewBlocks) {
  for (const auto& [rows, tokens] : std::vector<std::pair<int, int>>{{0, 16},
                                                                     {2, 16},
                                                                     {8, 16},
                                                                     {16, 32},
                                                                     {32, 48},
                                                                     {64, 80},
                                                                     {128, 144},
                                                                     {384, 144},
                                                                     {512, 176},
                                                                     {2048, 176}}) {
    EXPECT_EQ(choose_kernel(rows).tokens, tokens) << rows << " rows";
  }
}

TEST(GpuPlan, MathWarpsTakeOnlyTheRegistersThatTheLoadersGiveBack) {
  for (const KernelShape& shape : kKernelShapes) {
    for (const KernelPart part : {KernelPart::fused, KernelPart::k1, KernelPart::k2}) {
      EXPECT_LE(shape.loader_registers(part) + shape.math_groups * shape.math_registers(part),
                shape.launch_registers() * (shape.math_groups + 1));
      EXPECT_GE(shape.math_registers(part), shape.launch_registers());
      EXPECT_LE(shape.math_registers(part), 255);
    }
  }
}

TEST(GpuArena, RegionsAreDisjointAndCountersComeInTwoBanks) {
  LayerConfig config;
  config.hidden = 7168;
  config.intermediate = 2048;
  config.experts = 256;
  config.top_k = 8;
  config.max_tokens = 8192;
  const GpuArenaLayout layout = make_gpu_arena_layout(make_shape(config, 8));
  std::int64_t end = 0;
  for (const GpuRegionSpan& region : layout.regions) {
    EXPECT_GE(region.offset_bytes, end) << region.name;
    EXPECT_EQ(region.offset_bytes % 1024, 0) << region.name;
    end = region.offset_bytes + region.bytes();
  }
  EXPECT_LE(end, layout.bytes);
  for (const GpuRegion id : {GpuRegion::grid, GpuRegion::send_count, GpuRegion::block_arrival,
                             GpuRegion::block_readiness}) {
    EXPECT_EQ(layout[id].banks, 2) << layout[id].name;
  }
}

}  // namespace
}  // namespace megamoe::test
