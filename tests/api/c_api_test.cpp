// The C face: the same bits as the C++ one, and every mistake a status with a sentence.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "megamoe/megamoe.h"
#include "megamoe/megamoe.hpp"

#include "api/c_client.h"
#include "cli/synthetic.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

const std::string kMixtral = std::string(MEGAMOE_FIXTURES) + "/mixtral";

const std::uint16_t* bits(const std::vector<BFloat16>& values) {
  return reinterpret_cast<const std::uint16_t*>(values.data());
}
std::uint16_t* bits(std::vector<BFloat16>& values) {
  return reinterpret_cast<std::uint16_t*>(values.data());
}

/// Handles that end with their test.
struct Handles {
  megamoe_checkpoint* checkpoint = nullptr;
  megamoe_group* group = nullptr;
  megamoe_layer* layer = nullptr;
  megamoe_layer_config config = {};

  Handles() {
    must(megamoe_checkpoint_load(kMixtral.c_str(), 0, &checkpoint));
    must(megamoe_group_single(MEGAMOE_DEFAULT_DEADLINE, &group));
    must(megamoe_checkpoint_config(checkpoint, &config));
    config.max_tokens = 8;
    must(megamoe_layer_create_from_checkpoint(checkpoint, &config, group, nullptr, &layer));
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    megamoe_layer_destroy(layer);
    megamoe_group_destroy(group);
    megamoe_checkpoint_destroy(checkpoint);
  }
  static void must(megamoe_status status) { ASSERT_EQ(status, MEGAMOE_OK) << megamoe_last_error(); }
};

/// The call failed with `wanted`, and its sentence has `part`.
void expect_failure(megamoe_status status, megamoe_status wanted, const std::string& part) {
  EXPECT_EQ(status, wanted) << megamoe_last_error();
  EXPECT_NE(std::string(megamoe_last_error()).find(part), std::string::npos)
      << "wanted \"" << part << "\" in: " << megamoe_last_error();
}

megamoe_matrix to_c(const MatrixView& view) {
  return {static_cast<megamoe_weight_format>(view.format),
          view.rows,
          view.columns,
          view.values,
          view.row_stride_bytes,
          view.scales,
          view.scale_row_stride_bytes};
}

std::vector<megamoe_expert> to_c(const std::vector<ExpertWeights>& experts) {
  const auto bias = [](const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  std::vector<megamoe_expert> result;
  for (const ExpertWeights& expert : experts) {
    result.push_back({to_c(expert.gate), to_c(expert.up), to_c(expert.down), bias(expert.gate_bias),
                      bias(expert.up_bias), bias(expert.down_bias)});
  }
  return result;
}

TEST(CApi, ACheckpointRunFromCGivesTheBitsOfTheSameRunFromCpp) {
  CheckpointLayer checkpoint = load_layer(kMixtral, 0);
  checkpoint.config.max_tokens = 13;
  const std::int64_t hidden = checkpoint.config.hidden;
  const Input input = cli::synthetic_input(checkpoint.config, 5, 0, 13);
  Layer layer(checkpoint.config, checkpoint.weights, Group::single(), {.workers = 2});
  for (const Execution execution : {Execution::fused, Execution::split, Execution::staged}) {
    Batch batch = layer.batch(13);
    batch.x_bf16 = input.x;
    route(checkpoint.router, input.x, batch.experts, batch.weights);
    std::vector<BFloat16> expected(input.x.size());
    layer.forward(batch, expected, execution);
    std::vector<BFloat16> y(input.x.size());
    const char* failure =
        c_client_run(kMixtral.c_str(), bits(input.x), 13, static_cast<int>(execution), bits(y));
    ASSERT_EQ(failure, nullptr) << failure;
    EXPECT_EQ(difference(expected, y, hidden), "");
  }
}

TEST(CApi, ThreadRanksOverTheCallersMatricesGiveTheBitsOfCpp) {
  LayerConfig config{.hidden = 128,
                     .intermediate = 160,
                     .experts = 6,
                     .shared_experts = 1,
                     .top_k = 3,
                     .max_tokens = 16,
                     .recipe = Recipe::fp8_fp4,
                     .activation_limit = 5.0f,
                     .shared_weights = WeightFormat::fp8};
  const LayerWeights weights = cli::synthetic_weights(config, 3, 0, config.experts);
  const std::vector<megamoe_expert> experts = to_c(weights.experts);
  const std::vector<megamoe_expert> shared = to_c(weights.shared);
  const megamoe_layer_weights c_weights = {experts.data(), experts.size(), shared.data(),
                                           shared.size()};
  const megamoe_layer_config c_config = {
      128, 160, 6, 1, 3, 16, MEGAMOE_FP8_FP4, MEGAMOE_SWIGLU, 5.0f, MEGAMOE_SHARED_FP8};
  megamoe_group* groups[2] = {};
  ASSERT_EQ(megamoe_group_threads(2, MEGAMOE_DEFAULT_DEADLINE, groups), MEGAMOE_OK)
      << megamoe_last_error();
  std::vector<std::vector<BFloat16>> y(2);
  std::vector<std::string> failures(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      megamoe_layer* layer = nullptr;
      megamoe_batch batch;
      const Input input = cli::synthetic_input(config, 5, static_cast<std::int64_t>(rank), 11);
      y[rank].resize(input.x.size());
      const auto run = [&] {
        megamoe_status status =
            megamoe_layer_create(&c_config, &c_weights, groups[rank], nullptr, &layer);
        megamoe_group_destroy(groups[rank]);
        if (status == MEGAMOE_OK) status = megamoe_layer_batch(layer, 11, &batch);
        if (status != MEGAMOE_OK) return status;
        std::copy(input.experts.begin(), input.experts.end(), batch.experts);
        std::copy(input.weights.begin(), input.weights.end(), batch.weights);
        batch.x_bf16 = bits(input.x);
        batch.x_bf16_values = input.x.size();
        return megamoe_layer_forward(layer, &batch, bits(y[rank]), y[rank].size(), MEGAMOE_SPLIT);
      };
      if (run() != MEGAMOE_OK) failures[rank] = megamoe_last_error();
      megamoe_layer_destroy(layer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Layer layer(config, weights, Group::single());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(failures[rank], "") << "rank " << rank;
    const Input input = cli::synthetic_input(config, 5, static_cast<std::int64_t>(rank), 11);
    Batch batch = layer.batch(11);
    std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
    std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
    batch.x_bf16 = input.x;
    std::vector<BFloat16> expected(input.x.size());
    layer.forward(batch, expected);
    EXPECT_EQ(difference(expected, y[rank], config.hidden), "") << "rank " << rank;
  }
}

TEST(CApi, WhatALayerSaysOfItselfIsWhatCppSays) {
  Handles handles;
  EXPECT_STREQ(megamoe_version(), version());
  const char* family = nullptr;
  ASSERT_EQ(megamoe_checkpoint_family(handles.checkpoint, &family), MEGAMOE_OK);
  EXPECT_STREQ(family, "mixtral");
  int rank = -1;
  int ranks = -1;
  ASSERT_EQ(megamoe_group_rank(handles.group, &rank, &ranks), MEGAMOE_OK);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(ranks, 1);

  CheckpointLayer checkpoint = load_layer(kMixtral, 0);
  checkpoint.config.max_tokens = 8;
  const Layer layer(checkpoint.config, checkpoint.weights, Group::single());
  const char* text = nullptr;
  ASSERT_EQ(megamoe_layer_explain(handles.layer, &text), MEGAMOE_OK);
  EXPECT_EQ(text, layer.explain());
  megamoe_layer_config config;
  ASSERT_EQ(megamoe_layer_config_of(handles.layer, &config), MEGAMOE_OK);
  EXPECT_EQ(config.hidden, layer.config().hidden);
  EXPECT_EQ(config.max_tokens, 8);
  EXPECT_EQ(config.recipe, MEGAMOE_BF16_BF16);

  megamoe_batch batch;
  ASSERT_EQ(megamoe_layer_batch(handles.layer, 8, &batch), MEGAMOE_OK);
  const Batch same = layer.batch(8);
  EXPECT_EQ(batch.x_bytes, same.x.size());
  EXPECT_EQ(batch.x_scales_bytes, same.x_scales.size());
  const std::vector<BFloat16> x(static_cast<std::size_t>(8 * config.hidden), BFloat16{0x3f80});
  std::vector<BFloat16> y(x.size());
  batch.x_bf16 = bits(x);
  batch.x_bf16_values = x.size();
  ASSERT_EQ(megamoe_checkpoint_route(handles.checkpoint, bits(x), 8, batch.experts, batch.weights),
            MEGAMOE_OK);
  ASSERT_EQ(megamoe_layer_forward(handles.layer, &batch, bits(y), y.size(), MEGAMOE_FUSED),
            MEGAMOE_OK);
  megamoe_report report;
  ASSERT_EQ(megamoe_layer_report(handles.layer, &report), MEGAMOE_OK);
  EXPECT_EQ(report.tokens, 8);
  EXPECT_EQ(report.routes, 8 * config.top_k);
  ASSERT_EQ(report.rows_per_expert_count, static_cast<std::size_t>(config.experts));
  std::int64_t rows = 0;
  for (std::size_t e = 0; e < report.rows_per_expert_count; ++e) rows += report.rows_per_expert[e];
  EXPECT_EQ(rows, report.routes);
}

TEST(CApi, NullWhereSomethingIsWantedIsAnErrorThatNamesIt) {
  Handles handles;
  megamoe_batch batch;
  ASSERT_EQ(megamoe_layer_batch(handles.layer, 1, &batch), MEGAMOE_OK);
  const megamoe_status refused = MEGAMOE_INVALID_ARGUMENT;
  megamoe_layer* layer = handles.layer;
  expect_failure(megamoe_group_single(0, nullptr), refused, "group is NULL");
  expect_failure(megamoe_group_threads(2, 0, nullptr), refused, "groups is NULL");
  expect_failure(megamoe_checkpoint_load("x", 0, nullptr), refused, "checkpoint is NULL");
  expect_failure(megamoe_checkpoint_config(nullptr, &handles.config), refused,
                 "checkpoint is NULL");
  expect_failure(megamoe_layer_create_from_checkpoint(nullptr, &handles.config, handles.group,
                                                      nullptr, &layer),
                 refused, "checkpoint is NULL");
  EXPECT_EQ(layer, nullptr);
  expect_failure(megamoe_layer_create(&handles.config, nullptr, handles.group, nullptr, &layer),
                 refused, "weights is NULL");
  const megamoe_layer_weights no_experts = {nullptr, 4, nullptr, 0};
  expect_failure(megamoe_layer_create(&handles.config, &no_experts, handles.group, nullptr, &layer),
                 refused, "weights->experts is NULL");
  expect_failure(megamoe_layer_create(&handles.config, &no_experts, nullptr, nullptr, &layer),
                 refused, "is NULL");
  expect_failure(megamoe_layer_batch(nullptr, 1, &batch), refused, "layer is NULL");
  EXPECT_EQ(batch.x, nullptr);
  expect_failure(megamoe_layer_forward(nullptr, &batch, nullptr, 0, MEGAMOE_FUSED), refused,
                 "layer is NULL");
  expect_failure(megamoe_layer_forward(handles.layer, nullptr, nullptr, 0, MEGAMOE_FUSED), refused,
                 "batch is NULL");
  expect_failure(megamoe_layer_explain(nullptr, nullptr), refused, "is NULL");
  expect_failure(megamoe_layer_report(nullptr, nullptr), refused, "is NULL");
  std::int64_t experts[2];
  float weights[2];
  expect_failure(megamoe_checkpoint_route(handles.checkpoint, nullptr, 1, experts, weights),
                 refused, "x is NULL");
  megamoe_layer_destroy(nullptr);
  megamoe_group_destroy(nullptr);
  megamoe_checkpoint_destroy(nullptr);
}

TEST(CApi, WrongSizesAndUnknownNumbersAreErrorsAndTheLayerStaysUsable) {
  Handles handles;
  const megamoe_status refused = MEGAMOE_INVALID_ARGUMENT;
  megamoe_batch batch;
  expect_failure(megamoe_layer_batch(handles.layer, 9, &batch), refused, "9");
  expect_failure(megamoe_layer_batch(handles.layer, -1, &batch), refused, "-1");
  ASSERT_EQ(megamoe_layer_batch(handles.layer, 2, &batch), MEGAMOE_OK);
  const auto values = static_cast<std::size_t>(2 * handles.config.hidden);
  const std::vector<BFloat16> x(values, BFloat16{0x3f80});
  std::vector<BFloat16> y(values);
  batch.x_bf16 = bits(x);
  batch.x_bf16_values = values - 1;
  expect_failure(megamoe_layer_forward(handles.layer, &batch, bits(y), values, MEGAMOE_FUSED),
                 refused, "x_bf16");
  batch.x_bf16_values = values;
  expect_failure(megamoe_layer_forward(handles.layer, &batch, bits(y), values - 1, MEGAMOE_FUSED),
                 refused, "y has");
  expect_failure(megamoe_layer_forward(handles.layer, &batch, nullptr, values, MEGAMOE_FUSED),
                 refused, "y is NULL");
  expect_failure(megamoe_layer_forward(handles.layer, &batch, bits(y), values,
                                       static_cast<megamoe_execution>(3)),
                 refused, "execution is 3");
  megamoe_batch other = batch;
  other.experts = nullptr;
  expect_failure(megamoe_layer_forward(handles.layer, &other, bits(y), values, MEGAMOE_FUSED),
                 refused, "not of this layer");
  expect_failure(
      megamoe_checkpoint_route(handles.checkpoint, bits(x), -1, batch.experts, batch.weights),
      refused, "tokens is -1");

  megamoe_layer* layer = nullptr;
  megamoe_layer_config config = handles.config;
  config.recipe = static_cast<megamoe_recipe>(5);
  expect_failure(megamoe_layer_create_from_checkpoint(handles.checkpoint, &config, handles.group,
                                                      nullptr, &layer),
                 refused, "recipe is 5");
  config = handles.config;
  config.hidden = -1;
  expect_failure(megamoe_layer_create_from_checkpoint(handles.checkpoint, &config, handles.group,
                                                      nullptr, &layer),
                 refused, "hidden");
  megamoe_group* group = handles.group;
  expect_failure(megamoe_group_single(-2, &group), refused, "deadline_ns is -2");
  EXPECT_EQ(group, nullptr);

  ASSERT_EQ(megamoe_checkpoint_route(handles.checkpoint, bits(x), 2, batch.experts, batch.weights),
            MEGAMOE_OK);
  EXPECT_EQ(megamoe_layer_forward(handles.layer, &batch, bits(y), values, MEGAMOE_STAGED),
            MEGAMOE_OK)
      << megamoe_last_error();
}

TEST(CApi, StatusesKeepTheCodesOfTheErrors) {
  megamoe_checkpoint* checkpoint = nullptr;
  expect_failure(megamoe_checkpoint_load("/nonexistent/model", 0, &checkpoint), MEGAMOE_IO,
                 "/nonexistent/model");
  EXPECT_EQ(checkpoint, nullptr);
  expect_failure(megamoe_checkpoint_load(kMixtral.c_str(), 7, &checkpoint),
                 MEGAMOE_INVALID_ARGUMENT, "layer 7");
  const std::filesystem::path broken =
      std::filesystem::temp_directory_path() / ("megamoe-c-api-test-" + std::to_string(getpid()));
  std::filesystem::create_directory(broken);
  std::ofstream(broken / "config.json") << "{";
  expect_failure(megamoe_checkpoint_load(broken.c_str(), 0, &checkpoint), MEGAMOE_FORMAT,
                 "config.json");
  std::filesystem::remove_all(broken);
  megamoe_group* group = nullptr;
  const std::string rendezvous = "megamoe-c-api-test-" + std::to_string(getpid());
  expect_failure(megamoe_group_processes(0, 2, rendezvous.c_str(), 50'000'000, &group),
                 MEGAMOE_DEADLINE, "1");
  EXPECT_EQ(group, nullptr);
}

TEST(CApi, TheLastErrorIsOfItsOwnThread) {
  expect_failure(megamoe_group_single(-2, nullptr), MEGAMOE_INVALID_ARGUMENT, "group is NULL");
  std::string of_other = "unset";
  std::thread([&] { of_other = megamoe_last_error(); }).join();
  EXPECT_EQ(of_other, "");
  EXPECT_NE(std::string(megamoe_last_error()), "");
}

}  // namespace
}  // namespace megamoe::test
