// A layer on a CUDA device as a user meets it: bits, formats, weights, refusals.
#include <cmath>
#include <filesystem>
#include <limits>

#include <unistd.h>

#include "gpu/gpu_layer.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::test {
namespace {

using GpuLayer = GpuTest;

TEST_F(GpuLayer, IsAsNearToTheReferenceAsTheContractAsksAndNearTheCpu) {
  LayerConfig config = gpu_config();
  config.shared_experts = 1;
  for (const auto& [activation, recipe] : {std::pair{Activation::swiglu, Recipe::fp8_fp4},
                                           std::pair{Activation::swiglu_oai, Recipe::fp8_fp4},
                                           std::pair{Activation::swiglu, Recipe::fp8_fp8}}) {
    config.activation = activation;
    config.recipe = recipe;
    const LayerWeights weights = gpu_weights(config);
    Layer layer(config, weights, Group::device(0, quick()));
    GpuIo io(config);
    const Input input = cli::synthetic_input(config, 5, 0, 70);
    const auto y = run(layer, io, input);
    EXPECT_EQ(against_reference(config, weights, input, y), "");

    Layer on_cpu(config, weights, Group::single());
    std::vector<BFloat16> cpu_y(input.x.size());
    Batch batch = on_cpu.batch(70);
    std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
    std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
    batch.x_bf16 = input.x;
    on_cpu.forward(batch, cpu_y);
    EXPECT_LE(relative_l2(as_floats(y), as_floats(cpu_y)), tolerance(config.recipe));
  }
}

void expect_converted_like_the_caller(const LayerConfig& config) {
  Layer layer(config, gpu_weights(config), Group::device(0, quick()));
  GpuIo io(config);
  Input input = cli::synthetic_input(config, 6, 0, config.max_tokens);
  const float specials[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            1e-40f,
                            3e38f,
                            448.0f,
                            0x1p-127f};
  for (std::size_t i = 0; i < std::size(specials); ++i) {
    const std::size_t group = i * 5 * 32;
    input.x[group + 7] = to_bf16(specials[i]);
    if (i % 2 == 1)
      std::fill_n(input.x.begin() + static_cast<std::ptrdiff_t>(group), 32, to_bf16(specials[i]));
  }
  for (std::size_t i = 0; i < 32; ++i) input.x[4096 + i] = to_bf16(0.0f);
  // Every bf16 with a fixed group neighbour: all roundings of the conversion.
  for (std::size_t i = 0; i < 40000; ++i) {
    input.x[8192 + i] = BFloat16{static_cast<std::uint16_t>(i % 32 == 0 ? 0x4300 : 0x3c00 + i)};
  }
  const auto y = run(layer, io, input);
  const Batch batch = layer.batch(config.max_tokens);
  std::vector<std::byte> values(batch.x.size());
  std::vector<std::byte> scales(batch.x_scales.size());
  convert_x(config.recipe, config.hidden, input.x, values, scales);
  const auto got = io.read(batch.x);
  const auto got_scales = io.read(batch.x_scales);
  for (std::size_t i = 0; i < scales.size(); ++i)
    ASSERT_EQ(got_scales[i], scales[i]) << "group " << i;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], values[i]) << "token " << i / static_cast<std::size_t>(config.hidden)
                                 << " column " << i % static_cast<std::size_t>(config.hidden);
  }

  Batch converted = io.load(layer, input);
  converted.x_bf16 = {};
  io.copy(converted.x.data(), values);
  io.copy(converted.x_scales.data(), scales);
  io.stream().wait();
  io.poison();
  layer.forward(converted, io.whole_y());
  EXPECT_EQ(difference(y, io.read(config.max_tokens), config.hidden), "");
}

TEST_F(GpuLayer, ConvertsXToTheBitsOfTheCallersOwnConversion) {
  LayerConfig config = gpu_config();
  expect_converted_like_the_caller(config);
  config.recipe = Recipe::fp8_fp8;
  expect_converted_like_the_caller(config);
  config.hidden = 1056;  // the last group of 128 is short
  expect_converted_like_the_caller(config);
}

TEST_F(GpuLayer, RefreshedWeightsAreUsedAndRefusedOnesAreNot) {
  LayerConfig config = gpu_config();
  config.activation = Activation::swiglu_oai;
  Layer layer(config, gpu_weights(config, 1), Group::device(0, quick()));
  Layer other(config, gpu_weights(config, 2), Group::device(0, quick()));
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 11);
  const auto before = run(layer, io, input);
  LayerWeights bad = gpu_weights(config, 2);
  bad.experts.back().down_bias.assign(static_cast<std::size_t>(config.hidden), NAN);
  EXPECT_THROW(layer.refresh(bad), Error);
  EXPECT_EQ(difference(run(layer, io, input), before, config.hidden), "");
  layer.refresh(gpu_weights(config, 2));
  EXPECT_EQ(difference(run(layer, io, input), run(other, io, input), config.hidden), "");
}

TEST_F(GpuLayer, PackedWeightsAreSavedAndLoadedAndForThisBackendAlone) {
  LayerConfig config = gpu_config();
  config.activation = Activation::swiglu_oai;
  const auto folder =
      std::filesystem::temp_directory_path() / ("megamoe-gpu-packed-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Layer layer(config, gpu_weights(config), Group::device(0, quick()));
  layer.save_packed(folder / "rank0");
  Layer loaded(config, folder / "rank0", Group::device(0, quick()));
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 11);
  EXPECT_EQ(difference(run(layer, io, input), run(loaded, io, input), config.hidden), "");
  std::string message;
  EXPECT_EQ(code_of([&] { Layer(config, folder / "rank0", Group::single()); }, message),
            ErrorCode::mismatch)
      << message;
  std::filesystem::remove_all(folder);
}

TEST_F(GpuLayer, TakesWeightsInBf16AndQuantisesThem) {
  LayerConfig config = gpu_config();
  LayerConfig wide = config;
  wide.recipe = Recipe::bf16_bf16;
  const LayerWeights weights = gpu_weights(wide);
  Layer layer(config, weights, Group::device(0, quick()));
  Layer on_cpu(config, weights, Group::single());
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 20);
  const auto y = run(layer, io, input);
  std::vector<BFloat16> cpu_y(input.x.size());
  Batch batch = on_cpu.batch(20);
  std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
  std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
  batch.x_bf16 = input.x;
  on_cpu.forward(batch, cpu_y);
  EXPECT_LE(relative_l2(as_floats(y), as_floats(cpu_y)), tolerance(config.recipe));
}

TEST_F(GpuLayer, RefusesByNameWhatItDoesNotHave) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  const Group group = Group::device(0, quick());
  std::string message;
  const auto refused = [&](const LayerConfig& other, const LayerOptions& options) {
    return code_of([&] { Layer(other, weights, group, options); }, message);
  };
  LayerConfig recipe = config;
  recipe.recipe = Recipe::bf16_bf16;
  EXPECT_EQ(refused(recipe, {}), ErrorCode::unsupported);
  EXPECT_NE(message.find("bf16_bf16"), std::string::npos) << message;
  EXPECT_EQ(refused(config, {.k1_workers = 100000}), ErrorCode::invalid_argument);
  EXPECT_NE(message.find("k1_workers"), std::string::npos) << message;
  EXPECT_EQ(refused(config, {.k1_workers = 1, .k2_workers = 100000}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(config, {.instruction_set = InstructionSet::avx2}), ErrorCode::unsupported);
  EXPECT_EQ(refused(config, {.workers = 100000}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(config, {.block_rows = 17}), ErrorCode::invalid_argument);

  Layer layer(config, weights, group, {.workers = 8, .block_rows = 48});
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 90);
  EXPECT_EQ(against_reference(config, weights, input, run(layer, io, input)), "");
  const Batch batch = io.load(layer, input);
  EXPECT_EQ(code_of([&] { layer.forward(batch, io.y(89)); }, message), ErrorCode::invalid_argument);
  const std::span<BFloat16> odd(io.whole_y().data() + 1, io.y(90).size());
  EXPECT_EQ(code_of([&] { layer.forward(batch, odd); }, message), ErrorCode::invalid_argument);
  EXPECT_NE(message.find("16 bytes"), std::string::npos) << message;
  EXPECT_THROW(Group::device(device::device_facts().back().device + 1), Error);
}

TEST_F(GpuLayer, SaysWhatWasPlannedAndWhatACallDid) {
  const LayerConfig config = gpu_config();
  Layer layer(config, gpu_weights(config), Group::device(0, quick()));
  const std::string text = layer.explain();
  for (const char* part : {"fp8_fp4", "kernel", "token tile", "GEMM-1 input", "device"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  GpuIo io(config);
  Input input = cli::synthetic_input(config, 5, 0, 11);
  input.experts[0] = -1;
  input.experts[5] = input.experts[4];
  run(layer, io, input);
  const CallReport& report = layer.report();
  EXPECT_EQ(report.tokens, 11);
  EXPECT_EQ(report.routes, 42);
  std::int64_t rows = 0;
  for (const std::int64_t count : report.rows_per_expert) rows += count;
  EXPECT_EQ(rows, 42);
  EXPECT_EQ(report.flops, 6 * 42 * config.hidden * config.intermediate);
  EXPECT_GT(report.total_ns, 0);
}

TEST_F(GpuLayer, MemoryIsFlatOverTwoHundredLives) {
  const LayerConfig config = gpu_config();
  const LayerWeights weights = gpu_weights(config);
  GpuIo io(config);
  const Input input = cli::synthetic_input(config, 5, 0, 11);
  std::int64_t free_after_first = 0;
  for (int life = 0; life < 200; ++life) {
    {
      Layer layer(config, weights, Group::device(0, quick()));
      Graph graph = layer.graph(
          {.execution = life % 2 == 0 ? Execution::fused : Execution::split, .y = io.whole_y()});
      run(layer, io, input);
    }
    device::wait_for_device();
    // The first lives load kernels and fill the runtime's own caches.
    if (life == 10) free_after_first = device::free_bytes();
  }
  EXPECT_GE(device::free_bytes(), free_after_first - (4 << 20));
}

}  // namespace
}  // namespace megamoe::test
