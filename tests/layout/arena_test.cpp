#include "layout/arena.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace megamoe {
namespace {

constexpr Recipe kRecipes[] = {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16,
                               Recipe::bf16_fp4, Recipe::bf16_fp8};

constexpr LayerShape kSmall = {.hidden = 64,
                               .intermediate = 32,
                               .experts = 4,
                               .shared_experts = 1,
                               .top_k = 2,
                               .ranks = 2,
                               .max_tokens = 384,
                               .recipe = Recipe::fp8_fp4};

constexpr LayerShape kOdd = {.hidden = 3,
                             .intermediate = 130,
                             .experts = 3,
                             .top_k = 3,
                             .ranks = 2,
                             .max_tokens = 768,
                             .recipe = Recipe::bf16_bf16};

/// The first region that is out of order, unaligned or beyond the arena; kRegions if none is.
constexpr std::size_t first_misplaced(const ArenaLayout& layout) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < kRegions; ++i) {
    const Region& region = layout.regions[i];
    if (static_cast<std::size_t>(region.id) != i || region.offset_bytes < end ||
        region.offset_bytes % kRegionAlignment != 0 || region.bank_bytes < 0) {
      return i;
    }
    end = region.offset_bytes + region.bytes();
    if (end < region.offset_bytes || end > layout.bytes) return i;
  }
  return kRegions;
}

static_assert(first_misplaced(make_arena_layout(kSmall)) == kRegions);
static_assert(make_arena_layout(kSmall)[RegionId::fault].offset_bytes == 0);
static_assert(make_arena_layout(kSmall).bytes == 507904);

std::vector<LayerShape> shapes() {
  std::vector<LayerShape> all;
  for (Recipe recipe : kRecipes) {
    for (std::int64_t ranks : {1, 2, 3, 8, 72}) {
      for (std::int64_t experts : {1, 5, 64, 256}) {
        for (std::int64_t features : {1, 33, 128, 2880, 9000}) {
          all.push_back({.hidden = features,
                         .intermediate = features + 1,
                         .experts = experts,
                         .shared_experts = experts % 2,
                         .top_k = min64(experts, 6),
                         .ranks = ranks,
                         .max_tokens = 768,
                         .recipe = recipe});
        }
      }
    }
  }
  return all;
}

struct Placed {
  RegionId id;
  std::int64_t offset_bytes;
  std::int64_t bytes;
};

void expect_placed(const LayerShape& shape, const std::vector<Placed>& wanted,
                   std::int64_t arena_bytes) {
  const ArenaLayout layout = make_arena_layout(shape);
  ASSERT_EQ(wanted.size(), kRegions);
  for (const Placed& region : wanted) {
    EXPECT_EQ(layout[region.id].offset_bytes, region.offset_bytes) << layout[region.id].name;
    EXPECT_EQ(layout[region.id].bytes(), region.bytes) << layout[region.id].name;
  }
  EXPECT_EQ(layout.bytes, arena_bytes);
}

TEST(ArenaLayout, RegionsAreInOrderDisjointAlignedAndInsideTheArena) {
  for (const LayerShape& shape : shapes()) {
    const ArenaLayout layout = make_arena_layout(shape);
    const std::size_t misplaced = first_misplaced(layout);
    ASSERT_EQ(misplaced, kRegions) << layout.regions[misplaced].name << ": H " << shape.hidden
                                   << " E " << shape.experts << " R " << shape.ranks;
    ASSERT_EQ(layout.bytes % kArenaAlignment, 0);
  }
}

TEST(ArenaLayout, TheBanksOfWordsAreAlignedToTheWord) {
  for (const LayerShape& shape : shapes()) {
    const ArenaLayout layout = make_arena_layout(shape);
    for (const auto& [id, alignment] : {std::pair<RegionId, std::int64_t>{RegionId::send_count, 8},
                                        {RegionId::receive_total, 8},
                                        {RegionId::ticket, alignof(TicketWord)},
                                        {RegionId::block_arrival, 4},
                                        {RegionId::block_readiness, 8}}) {
      ASSERT_EQ(layout[id].bank_bytes % alignment, 0) << layout[id].name;
    }
  }
}

TEST(ArenaLayout, EveryRegionHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const Region& region : make_arena_layout(kSmall).regions) {
    EXPECT_FALSE(std::string(region.name).empty()) << static_cast<int>(region.id);
    EXPECT_TRUE(names.insert(region.name).second) << region.name << " is there twice";
  }
}

TEST(ArenaLayout, SignalsAndCountersAreControlAndEverythingElseIsData) {
  const std::set<RegionId> control = {
      RegionId::fault,      RegionId::barrier,       RegionId::call_state,
      RegionId::send_count, RegionId::receive_count, RegionId::receive_total,
      RegionId::ticket,     RegionId::block_arrival, RegionId::block_readiness};
  for (const Region& region : make_arena_layout(kSmall).regions) {
    EXPECT_EQ(region.kind == RegionKind::control, control.count(region.id) == 1) << region.name;
  }
}

TEST(ArenaLayout, WhatACallMustFindZeroHasTwoBanks) {
  const std::set<RegionId> cleared = {RegionId::send_count, RegionId::receive_total,
                                      RegionId::ticket, RegionId::block_arrival,
                                      RegionId::block_readiness};
  for (const Region& region : make_arena_layout(kSmall).regions) {
    EXPECT_EQ(region.banks, cleared.count(region.id) == 1 ? 2 : 1) << region.name;
  }
}

TEST(ArenaLayout, ASmallQuantisedLayerHasTheOffsetsCountedByHand) {
  // Pool: 2 ranks x 384 tokens x 2 routed, 384 shared, 191 x 3 padding: 2493, so 2688 rows.
  expect_placed(kSmall,
                {{RegionId::fault, 0, 512},
                 {RegionId::barrier, 512, 32},
                 {RegionId::call_state, 768, 64},
                 {RegionId::send_count, 1024, 64},
                 {RegionId::receive_count, 1280, 32},
                 {RegionId::receive_total, 1536, 32},
                 {RegionId::ticket, 1792, 384},
                 {RegionId::block_arrival, 2304, 1344},
                 {RegionId::block_readiness, 3840, 2688},
                 {RegionId::source_list, 6656, 6144},
                 {RegionId::row_source, 12800, 32256},
                 {RegionId::row_weight, 45056, 10752},
                 {RegionId::x, 55808, 24576},
                 {RegionId::x_scales, 80384, 768},
                 {RegionId::expert_ids, 81152, 6144},
                 {RegionId::expert_weights, 87296, 3072},
                 {RegionId::gemm1_input, 90368, 172032},
                 {RegionId::gemm1_input_scales, 262400, 5376},
                 {RegionId::gemm2_input, 267776, 86016},
                 {RegionId::gemm2_input_scales, 353792, 2688},
                 {RegionId::combine, 356608, 147456}},
                507904);
}

TEST(ArenaLayout, ASmallUnquantisedLayerOfOddSizesHasTheOffsetsCountedByHand) {
  // Pool: 2 ranks x 768 tokens x min(3, 2 local experts), 191 x 2 padding: 3454, so 3456 rows.
  expect_placed(kOdd,
                {{RegionId::fault, 0, 512},
                 {RegionId::barrier, 512, 32},
                 {RegionId::call_state, 768, 64},
                 {RegionId::send_count, 1024, 48},
                 {RegionId::receive_count, 1280, 32},
                 {RegionId::receive_total, 1536, 32},
                 {RegionId::ticket, 1792, 384},
                 {RegionId::block_arrival, 2304, 1728},
                 {RegionId::block_readiness, 4096, 3456},
                 {RegionId::source_list, 7680, 12288},
                 {RegionId::row_source, 19968, 41472},
                 {RegionId::row_weight, 61440, 13824},
                 {RegionId::x, 75264, 4608},
                 {RegionId::x_scales, 79872, 0},
                 {RegionId::expert_ids, 79872, 18432},
                 {RegionId::expert_weights, 98304, 9216},
                 {RegionId::gemm1_input, 107520, 20736},
                 {RegionId::gemm1_input_scales, 128256, 0},
                 {RegionId::gemm2_input, 128256, 898560},
                 {RegionId::gemm2_input_scales, 1026816, 0},
                 {RegionId::combine, 1026816, 13824}},
                1044480);
}

TEST(ArenaLayout, ReadinessHasAsManyWordsAsTheIntermediateNeeds) {
  LayerShape shape = kSmall;
  for (const auto& [intermediate, words] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {8192, 1}, {8193, 2}, {16384, 2}}) {
    shape.intermediate = intermediate;
    EXPECT_EQ(shape.readiness_words(), words) << intermediate;
    EXPECT_EQ(make_arena_layout(shape)[RegionId::block_readiness].bank_bytes,
              shape.pool_blocks() * words * 8);
  }
}

using Wide = __int128;

Wide up(Wide value, Wide step) {
  return (value + step - 1) / step * step;
}

/// The sizes of the regions of `s`, in 128-bit arithmetic, in the order of RegionId.
std::vector<Wide> wide_sizes(const LayerShape& s) {
  const Wide ranks = s.ranks, experts = s.experts, tokens = s.max_tokens, h = s.hidden,
             i = s.intermediate, k = s.top_k, shared = s.shared_experts;
  const Wide local = up(experts, ranks) / ranks;
  const Wide routed = ranks * tokens * std::min(k, local);
  const Wide rows = up(routed + shared * tokens + 191 * (local + shared), 384);
  const Wide groups = up(i, 128) / 128;
  const bool scaled = s.recipe == Recipe::fp8_fp4 || s.recipe == Recipe::fp8_fp8;
  const Wide x_row = scaled ? h : 2 * h;
  const Wide x_scale_row = !scaled                       ? 0
                           : s.recipe == Recipe::fp8_fp4 ? up(h, 32) / 32
                                                         : up(h, 128) / 128 * 4;
  const Wide words = up(groups, 64) / 64;
  return {512,
          16 * ranks,
          64,
          2 * 8 * experts,
          8 * ranks * local,
          2 * 8 * local,
          2 * 3 * 64,
          2 * rows / 16 * 4,
          2 * rows / 16 * words * 8,
          local * ranks * tokens * 4,
          rows * 12,
          rows * 4,
          tokens * x_row,
          tokens * x_scale_row,
          tokens * k * 8,
          tokens * k * 4,
          rows * x_row,
          rows * x_scale_row,
          rows * (scaled ? i : 2 * i),
          scaled ? rows * groups : 0,
          (k + shared) * tokens * h * 2};
}

void expect_no_overflow(const LayerShape& shape) {
  const std::vector<Wide> wanted = wide_sizes(shape);
  const ArenaLayout layout = make_arena_layout(shape);
  Wide offset = 0;
  for (std::size_t i = 0; i < kRegions; ++i) {
    const Region& region = layout.regions[i];
    ASSERT_TRUE(Wide{region.bytes()} == wanted[i])
        << region.name << " has " << region.bytes() << " bytes at R " << shape.ranks;
    ASSERT_TRUE(Wide{region.offset_bytes} == offset)
        << region.name << " at " << region.offset_bytes << " at R " << shape.ranks;
    offset = up(offset + wanted[i], 256);
  }
  ASSERT_TRUE(Wide{layout.bytes} == up(offset, 4096)) << layout.bytes;
}

TEST(ArenaLayout, ALargeLayerOfEightRanksIsCountedInSixtyFourBits) {
  LayerShape shape = {.hidden = 7168,
                      .intermediate = 2048,
                      .experts = 256,
                      .top_k = 8,
                      .ranks = 8,
                      .max_tokens = 56064};
  for (Recipe recipe : kRecipes) {
    shape.recipe = recipe;
    expect_no_overflow(shape);
  }
  const ArenaLayout layout = make_arena_layout(shape);
  EXPECT_GT(layout[RegionId::combine].bytes(), std::int64_t{1} << 32);
  EXPECT_GT(layout[RegionId::gemm1_input].bytes(), std::int64_t{1} << 32);
  EXPECT_GT(layout[RegionId::combine].offset_bytes, std::int64_t{1} << 32);
}

TEST(ArenaLayout, EveryGroupUpToSeventyTwoRanksIsCountedInSixtyFourBits) {
  for (std::int64_t ranks = 1; ranks <= 72; ++ranks) {
    expect_no_overflow({.hidden = 4096,
                        .intermediate = 1024,
                        .experts = 512,
                        .shared_experts = 1,
                        .top_k = 10,
                        .ranks = ranks,
                        .max_tokens = 56064});
  }
}

TEST(ArenaLayout, TheLargestLayerThatAPlanAcceptsIsCountedInSixtyFourBits) {
  for (Recipe recipe : kRecipes) {
    for (std::int64_t ranks : {1, 256, 1024}) {
      expect_no_overflow({.hidden = 1 << 20,
                          .intermediate = 1 << 20,
                          .experts = 1 << 16,
                          .shared_experts = 64,
                          .top_k = 32,
                          .ranks = ranks,
                          .max_tokens = 16777344,
                          .recipe = recipe});
    }
  }
}

}  // namespace
}  // namespace megamoe
