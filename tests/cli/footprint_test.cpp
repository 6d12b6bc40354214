// What `plan` says a layer takes, against what the process then has.
#include "cli/footprint.hpp"

#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "megamoe/megamoe.hpp"

#include "api/group_state.hpp"
#include "api/layer_plan.hpp"
#include "cli/prediction.hpp"

namespace megamoe::cli {
namespace {

LayerRequest small_request() {
  LayerRequest request;
  request.ranks = 1;
  request.hidden = 512;
  request.intermediate = 256;
  request.experts = 8;
  request.top_k = 4;
  request.tokens = 2048;
  return request;
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

bool counts_pages_of_its_own() {
#ifdef MEGAMOE_SANITIZED
  return true;
#else
  return false;
#endif
}

TEST(Footprint, IsWhatTheProcessTakesWhenAllOfItIsTouched) {
  if (counts_pages_of_its_own()) GTEST_SKIP() << "sanitizers keep pages beside each page";
  const LayerSource source(small_request());
  const LayerOptions options{.workers = 2};
  const Plan plan = plan_layer(source.config(), 1, options);
  const Footprint footprint = footprint_of(source, plan);
  const Group group = Group::single();
  const LayerWeights weights = source.weights(0);
  const std::int64_t before = resident_bytes();
  const Layer layer(source.config(), weights, group, options);
  const std::int64_t packed = resident_bytes() - before;
  const auto arena = group.state().arena(plan.shape);
  std::memset(arena->mine<std::byte>(RegionId::fault), 0,
              static_cast<std::size_t>(plan.arena.bytes));
  const std::int64_t all = resident_bytes() - before;
  const auto expect_near = [](std::int64_t got, std::int64_t said, const char* what) {
    EXPECT_NEAR(static_cast<double>(got), static_cast<double>(said),
                0.05 * static_cast<double>(said))
        << what;
  };
  expect_near(all - packed, footprint.arena_bytes, "the arena");
  expect_near(all, footprint.bytes() - footprint.source_bytes - footprint.scratch_bytes,
              "arena and weights, while no worker has touched its scratch");
}

TEST(Footprint, ACallTouchesNoMoreThanIsReserved) {
  const LayerSource source(small_request());
  const Plan plan = plan_layer(source.config(), 4, {});
  for (const Region& region : plan.arena.regions) {
    std::int64_t last = 0;
    for (std::int64_t tokens : {0, 1, 100, 2048}) {
      const std::int64_t bytes = touched_bytes(region, plan, tokens);
      EXPECT_LE(bytes, region.bytes()) << region.name;
      EXPECT_GE(bytes, last) << region.name << ": fewer with more tokens";
      last = bytes;
    }
  }
}

TEST(Footprint, TooLargeALayerIsRefusedWithNeededAndAvailable) {
  const Footprint footprint{.arena_bytes = std::int64_t{1} << 30,
                            .weight_bytes = std::int64_t{2} << 30};
  EXPECT_NO_THROW(check_footprint(footprint, 2, {std::int64_t{7} << 30, "a test"}));
  try {
    check_footprint(footprint, 2, {std::int64_t{5} << 30, "a test"});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    for (const char* part : {"6.0 GiB in all", "5.0 GiB are available", "a test"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Footprint, WeightsFromASeedTakeWhatIsSaid) {
  for (Recipe recipe : {Recipe::fp8_fp4, Recipe::fp8_fp8, Recipe::bf16_bf16}) {
    LayerRequest request = small_request();
    request.recipe = recipe;
    const LayerSource source(request);
    const ExpertWeights expert = source.weights(0).experts[0];
    const auto bytes_of = [](const MatrixView& m) {
      const std::int64_t scales = m.format == WeightFormat::fp8 ? ceil_div(m.rows, 128) : m.rows;
      return m.rows * m.row_stride_bytes + scales * m.scale_row_stride_bytes;
    };
    EXPECT_EQ(synthetic_expert_bytes(source.config(), expert.gate.format),
              bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down));
  }
}

TEST(Prediction, IsBetweenOneTokensExpertsAndAllOfThem) {
  LayerRequest request = small_request();
  request.ranks = 2;
  request.shared_experts = false;
  request.tokens = 0;
  const auto predicted = [&] {
    const LayerSource source(request);
    return predict(source, plan_layer(source.config(), 2, {}));
  };
  EXPECT_EQ(predicted().weight_bytes, 0);
  EXPECT_EQ(predicted().flops, 0);
  request.tokens = 4096;
  EXPECT_NEAR(predicted().experts_hit, 8, 1e-6);
  EXPECT_EQ(predicted().flops, 6.0 * 512 * 256 * 4 * 8192);
  request.ranks = 1;
  request.tokens = 1;
  const LayerSource source(request);
  const Plan plan = plan_layer(source.config(), 1, {});
  const Prediction one = predict(source, plan);
  EXPECT_NEAR(one.experts_hit, 4, 1e-9);
  EXPECT_NEAR(one.weight_bytes, 4.0 * static_cast<double>(footprint_of(source, plan).expert_bytes),
              1);
}

}  // namespace
}  // namespace megamoe::cli
