// The engine against the reference, over recipes, ranks, workers, executions and instruction sets.
#include <gtest/gtest.h>

#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

constexpr Recipe kRecipes[] = {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16,
                               Recipe::bf16_fp4, Recipe::bf16_fp8};
TEST(Engine, EveryRecipeMatchesTheReferenceOnEveryExecution) {
  for (Recipe recipe : kRecipes) {
    for (std::int64_t shared : {0, 2}) {
      LayerConfig config = small_config(recipe);
      config.shared_experts = shared;
      EngineGroup group({.config = config, .ranks = 3});
      const auto all = group.inputs({17, 0, 33});
      const GroupResult fused = group.call(all, Execution::fused);
      fused.check();
      EXPECT_EQ(group.compare_with_reference(all, fused), "");
      for (Execution execution : kExecutions) {
        group.poison();
        const GroupResult other = group.call(all, execution);
        other.check();
        for (std::size_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(difference(fused.y[rank], other.y[rank], config.hidden), "") << "rank " << rank;
        }
      }
    }
  }
}

TEST(Engine, SharedExpertsInAnotherFormatMatchTheReferenceOnEveryExecution) {
  for (Recipe recipe : kRecipes) {
    for (WeightFormat shared : {WeightFormat::bf16, WeightFormat::fp4, WeightFormat::fp8}) {
      if (shared == weight_format(recipe)) continue;
      for (int ranks : {1, 2}) {
        LayerConfig config = small_config(recipe);
        config.shared_experts = 2;
        config.shared_weights = shared;
        EngineGroup group({.config = config, .ranks = ranks});
        const auto all =
            group.inputs(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 21));
        const GroupResult fused = group.call(all, Execution::fused);
        fused.check();
        EXPECT_EQ(group.compare_with_reference(all, fused), "");
        for (Execution execution : kExecutions) {
          group.poison();
          const GroupResult other = group.call(all, execution);
          other.check();
          EXPECT_EQ(difference(fused, other, config.hidden), "");
        }
      }
    }
  }
}

/// The bytes of a row of a matrix as packing lays them into a lane of a strip.
std::vector<std::byte> lane_bytes(const std::byte* strip, WeightFormat format, std::int64_t lane,
                                  std::int64_t columns) {
  std::vector<std::byte> bytes;
  for (std::int64_t column = 0; column < columns; column += columns_per_word(format)) {
    const std::byte* word = strip + column / kChunkColumns * chunk_bytes(format) +
                            word_offset(format, lane, column % kChunkColumns);
    bytes.insert(bytes.end(), word, word + 4);
  }
  return bytes;
}

TEST(Engine, PackedBytesOfRoutedAndSharedExpertsAreThoseOfTheirMatrices) {
  LayerConfig config = small_config(Recipe::fp8_fp4);
  config.shared_experts = 2;
  config.shared_weights = WeightFormat::fp8;
  const LayerShape shape = make_shape(config, 1);
  PackedWeights packed(shape);
  const LayerWeights weights = cli::synthetic_weights(config, 3, 0, config.experts);
  packed.pack(weights, 0);
  const auto expect_kept = [&](const ExpertWeights& from, std::int64_t pool_expert) {
    const PackedExpert expert = packed.expert(pool_expert);
    const WeightFormat format = from.gate.format;
    EXPECT_EQ(expert.strips.gemm1.format, format);
    EXPECT_EQ(expert.strips.gemm2.format, format);
    const auto row_of = [](const MatrixView& matrix, std::int64_t row) {
      const std::byte* first = matrix.values + row * matrix.row_stride_bytes;
      return std::vector<std::byte>(first, first + matrix.row_stride_bytes);
    };
    EXPECT_EQ(lane_bytes(expert.gemm1, format, 5, config.hidden), row_of(from.gate, 5));
    EXPECT_EQ(lane_bytes(expert.gemm1, format, 16 + 5, config.hidden), row_of(from.up, 5));
    EXPECT_EQ(lane_bytes(expert.gemm2, format, 31, config.intermediate), row_of(from.down, 31));
  };
  for (std::int64_t e = 0; e < config.experts; ++e) {
    expect_kept(weights.experts[static_cast<std::size_t>(e)], e);
  }
  expect_kept(weights.shared[0], config.experts);
  expect_kept(weights.shared[1], config.experts + 1);
  const std::byte* end = packed.strips().data() + packed.strips().size();
  const PackedExpert last = packed.expert(config.experts + 1);
  EXPECT_EQ(last.gemm2 + last.strips.gemm2.bytes(), end);
}

TEST(Engine, BitsDoNotDependOnRanksWorkersOrBlocks) {
  LayerConfig config = small_config();
  config.max_tokens = 40;
  EngineGroup alone({.config = config, .ranks = 1});
  const Input input = alone.input(0, 40);
  const GroupResult expected = alone.call({input}, Execution::fused);
  expected.check();
  for (int ranks : {1, 2, 3, 4, 12}) {
    for (std::int64_t workers : {1, 3}) {
      for (std::int64_t block_rows : {16, 192}) {
        EngineGroup group({.config = config,
                           .ranks = ranks,
                           .plan = {.workers = workers, .block_rows = block_rows}});
        std::vector<Input> all(static_cast<std::size_t>(ranks));
        all.back() = input;
        for (int r = 0; r + 1 < ranks; ++r) all[static_cast<std::size_t>(r)] = group.input(r, 11);
        const GroupResult result = group.call(all, Execution::split);
        result.check();
        EXPECT_EQ(difference(expected.y[0], result.y.back(), config.hidden), "")
            << ranks << " ranks, " << workers << " workers, blocks of " << block_rows;
      }
    }
  }
}

}  // namespace
}  // namespace megamoe::test
