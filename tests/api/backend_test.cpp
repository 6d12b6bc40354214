// Which backend a layer gets, and what a group of CPUs says to what only CUDA has.
#include <gtest/gtest.h>

#include "megamoe/megamoe.hpp"

#include "api/cuda_plan.hpp"
#include "cli/synthetic.hpp"
#include "device/gpu.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

std::string message_of(ErrorCode code, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

LayerConfig hopper_config() {
  LayerConfig config;
  config.hidden = 7168;
  config.intermediate = 2048;
  config.experts = 256;
  config.top_k = 8;
  config.max_tokens = 512;
  return config;
}

TEST(Backend, IsTheCpuWhereCudaHasNotTheRecipeAndSaysWhy) {
  LayerConfig config = hopper_config();
  config.recipe = Recipe::bf16_bf16;
  const BackendChoice choice = choose_backend(config, 1, Backend::automatic);
  EXPECT_EQ(choice.backend, Backend::cpu);
  EXPECT_NE(choice.reason, "");
  message_of(ErrorCode::unsupported, [&] { choose_backend(config, 1, Backend::cuda); });
  EXPECT_EQ(choose_backend(config, 1, Backend::cpu).backend, Backend::cpu);
}

TEST(Backend, IsCudaWhereADeviceRunsTheLayer) {
  const BackendChoice choice = choose_backend(hopper_config(), 8, Backend::automatic);
  EXPECT_EQ(choice.backend, cuda_devices() > 0 ? Backend::cuda : Backend::cpu) << choice.reason;
}

TEST(Backend, ThatIsAbsentIsRefusedWithWhatIsMissing) {
  if (cuda_devices() > 0) GTEST_SKIP() << "a CUDA device is here";
  const std::string message = message_of(ErrorCode::unsupported, [] { Group::devices({0, 0}); });
  EXPECT_NE(message.find("use the cpu backend"), std::string::npos) << message;
  const std::string chosen =
      message_of(ErrorCode::unsupported, [] { choose_backend(hopper_config(), 1, Backend::cuda); });
  EXPECT_EQ(chosen, "backend cuda: " + message);
}

TEST(Backend, OfAGroupOfCpusRefusesStreams) {
  const LayerConfig config = small_config();
  const Group group = Group::single();
  EXPECT_EQ(group.backend(), Backend::cpu);
  Layer layer(config, cli::synthetic_weights(config, 1, 0, config.experts), group);
  std::vector<BFloat16> y(static_cast<std::size_t>(config.max_tokens * config.hidden));
  Batch batch = layer.batch(0);
  const std::string message = message_of(ErrorCode::unsupported, [&] {
    layer.forward(batch, std::span(y).first(0), static_cast<void*>(nullptr));
  });
  EXPECT_NE(message.find("Group::devices"), std::string::npos) << message;
  std::int32_t tokens = 0;
  message_of(ErrorCode::unsupported, [&] { layer.forward_counted(&tokens, batch, y, nullptr); });
  Graph graph = layer.graph({.y = y});
  message_of(ErrorCode::unsupported, [&] { graph.replay(0, nullptr); });
  layer.wait();
  EXPECT_TRUE(layer.poll());
}

TEST(CudaPlan, IsKnownWithoutADevice) {
  const CudaPlan plan = plan_cuda_layer(hopper_config(), 8, {}, kHopperMultiprocessors);
  EXPECT_EQ(plan.machine.blocks, 132);
  EXPECT_LT(plan.of_call(1).kernel.tokens, plan.of_call(512).kernel.tokens);
  for (const char* part : {"H 7168", "fp8_fp4", "token tile", "combine", "132"}) {
    EXPECT_NE(plan.explain().find(part), std::string::npos) << plan.explain();
  }
  const CudaPlan narrow =
      plan_cuda_layer(hopper_config(), 8, {.workers = 20, .block_rows = 32}, 132);
  EXPECT_EQ(narrow.machine.blocks, 20);
  EXPECT_EQ(narrow.of_call(512).kernel.tokens, 32);
}

TEST(CudaPlan, RefusesWhatItCannotUse) {
  const auto plan = [](const LayerOptions& options) {
    plan_cuda_layer(hopper_config(), 8, options, 132);
  };
  for (const LayerOptions& options : {LayerOptions{.instruction_set = InstructionSet::scalar},
                                      LayerOptions{.bind_threads = true}}) {
    message_of(ErrorCode::unsupported, [&] { plan(options); });
  }
  message_of(ErrorCode::invalid_argument, [&] { plan({.workers = 133}); });
  message_of(ErrorCode::invalid_argument, [&] { plan({.k1_workers = 100, .k2_workers = 33}); });
  message_of(ErrorCode::invalid_argument, [&] { plan({.block_rows = 24}); });
}

TEST(PeerBytes, HoldAnArenaAndTheMeetingsOfItsRanks) {
  const LayerConfig config = hopper_config();
  const CudaPlan plan = plan_cuda_layer(config, 8, {}, kHopperMultiprocessors);
  EXPECT_GT(Group::peer_bytes(config, 8), plan.arena.bytes);
  LayerConfig recipe = config;
  recipe.recipe = Recipe::bf16_fp8;
  message_of(ErrorCode::unsupported, [&] { Group::peer_bytes(recipe, 8); });
}

}  // namespace
}  // namespace megamoe::test
