// Real checkpoint formats, end to end over rank processes, against outputs of an independent
// implementation.
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "checkpoint/safetensors.hpp"
#include "cli/rank_run.hpp"
#include "cpu/reference.hpp"

namespace megamoe::cli {
namespace {

std::vector<float> expected_output(const std::string& folder) {
  const SafetensorsFile file(folder + "/expected.safetensors");
  const TensorView& tensor = file.tensor("output");
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// How far a right implementation is from the family's f32 one. bf16 activations: the roundings of
/// the contract. FP8: an E4M3 rounding, 2.6e-2 in the root mean square, of x and of the
/// intermediate, and of bf16 weights, which become fp8.
double most(const std::string& folder, ActivationFormat activations) {
  if (activations == ActivationFormat::bf16) return 6e-3;
  const bool bf16_weights = load_layer(folder, 0).config.recipe == Recipe::bf16_bf16;
  return bf16_weights ? 7e-2 : 5e-2;
}

class Fixture : public ::testing::TestWithParam<const char*> {};

TEST_P(Fixture, MatchesTheModelFamilyOnOneToFourRanksInEveryExecution) {
  const std::string folder = std::string(MEGAMOE_FIXTURES) + "/" + GetParam();
  const std::vector<float> expected = expected_output(folder);
  for (ActivationFormat activations : {ActivationFormat::bf16, ActivationFormat::fp8}) {
    std::vector<float> first;
    for (std::int64_t ranks = 1; ranks <= 4; ++ranks) {
      LayerRequest request;
      request.checkpoint = folder;
      request.input = folder + "/expected.safetensors";
      request.activations = activations;
      request.ranks = ranks;
      RankTeam team = RankTeam::forked(ranks, std::chrono::seconds(30));
      const RunResult result =
          run_layer(LayerSource(request),
                    {.executions = {Execution::fused, Execution::split, Execution::staged},
                     .layer = {.workers = 2}},
                    team);
      for (const ExecutionResult& execution : result.executions) {
        if (first.empty()) first = execution.y;
        EXPECT_EQ(std::memcmp(first.data(), execution.y.data(), first.size() * sizeof(float)), 0)
            << ranks << " ranks: other bits";
      }
      EXPECT_LE(relative_l2(result.executions.front().y, expected), most(folder, activations))
          << ranks << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Fixture,
                         ::testing::Values("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace megamoe::cli
