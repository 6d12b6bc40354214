// A layer on one Hopper GPU: median times over tokens, beside the peers' figures, the
// targets and the floor. One rank that carries one eighth of an expert-parallel layer: every expert
// is local.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <set>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/names.hpp"
#include "gpu_group.hpp"

namespace {

using namespace megamoe;

/// What is known about a shape at a number of tokens, in microseconds; 0: nothing.
struct Known {
  std::int64_t tokens;
  double peer;  ///< the best of the peers measured on the same kind of GPU
  double target;
};

struct Shape {
  const char* name;
  std::int64_t hidden, intermediate, experts, top_k;
  std::vector<Known> known;
};

const Shape kShapes[] = {
    {"v3",
     7168,
     2048,
     32,
     8,
     {{8, 287.2, 180},
      {32, 349.8, 195},
      {64, 362.5, 195},
      {128, 373.5, 205},
      {512, 743.3, 370},
      {2048, 1989.7, 1250},
      {8192, 7466, 4800}}},
    {"flash",
     4096,
     2048,
     32,
     6,
     {{8, 213.4, 100},
      {64, 239.8, 115},
      {512, 347.6, 190},
      {2048, 880.3, 570},
      {8192, 3105, 2120}}},
    {"pro",
     7168,
     3072,
     48,
     6,
     {{8, 542.9, 280},
      {64, 817.4, 410},
      {512, 920.7, 520},
      {2048, 2133.2, 1450},
      {8192, 7376, 5450}}},
    {"qwen3", 4096, 1536, 128, 8, {}},
    {"gpt-oss", 2880, 2880, 128, 4, {}},
};

/// The peer's kernel with FP8 weights at the v3 shape; at flash and pro it is the best there is.
double fp8_peer(const std::string& shape, std::int64_t tokens, double best) {
  if (shape != "v3") return best;
  const std::pair<std::int64_t, double> known[] = {{8, 358.7},   {32, 390.6},  {64, 408.2},
                                                   {128, 393.2}, {512, 743.3}, {2048, 1989.7},
                                                   {8192, 7466}};
  for (const auto& [at, us] : known) {
    if (at == tokens) return us;
  }
  return 0;
}

struct Options {
  std::string shape = "v3";
  Recipe recipe = Recipe::fp8_fp4;
  std::vector<std::int64_t> tokens = {8, 32, 64, 128, 512, 2048, 8192};
  std::vector<int> tiles;  ///< empty: the plan's choice
  std::vector<std::string> executions = {"fused"};
  std::vector<std::int64_t> k1;  ///< multiprocessors of K1; empty: the plan's choice
  int waves = 0;
  int repeats = 20;
  int gpus = 1;   ///< ranks, one on each
  int share = 0;  ///< ranks that share one GPU, its tokens and its experts; 0: none do
  std::string json;
  std::string commit = "unknown";
};

/// Batches in GPU memory that take turns.
struct Inputs {
  std::vector<device::Memory> x, scales, ids, weights;
  std::int64_t experts_hit = 0;
};

Inputs make_inputs(const LayerConfig& config, std::int64_t tokens, int count, unsigned seed) {
  Inputs inputs;
  for (int i = 0; i < count; ++i) {
    test::BatchData batch =
        test::make_batch_data(config, std::min<std::int64_t>(tokens, 256), seed + 100u + i);
    // Ids for all tokens; rows of x repeat after 256.
    LayerConfig narrow = config;
    narrow.hidden = 128;
    const test::BatchData ids = test::make_batch_data(narrow, tokens, seed + 200u + i);
    const auto upload = [&](std::vector<device::Memory>& to, const auto& from, std::int64_t bytes) {
      to.emplace_back(bytes, "inputs");
      const auto size = static_cast<std::int64_t>(from.size() * sizeof(from[0]));
      for (std::int64_t at = 0; at < bytes; at += size) {
        to.back().copy_from(from.data(), std::min(size, bytes - at), at);
      }
    };
    upload(inputs.x, batch.x, tokens * config.hidden);
    upload(inputs.scales, batch.x_scales, tokens * x_scale_row_bytes(config.recipe, config.hidden));
    upload(inputs.ids, ids.experts, tokens * config.top_k * 8);
    upload(inputs.weights, ids.weights, tokens * config.top_k * 4);
    inputs.experts_hit = static_cast<std::int64_t>(
        std::set<std::int64_t>(ids.experts.begin(), ids.experts.end()).size());
  }
  return inputs;
}

/// Inputs of every rank, on its own device.
std::vector<Inputs> make_inputs_of_ranks(const test::GpuGroup& group, const LayerConfig& config,
                                         std::int64_t tokens, int ranks) {
  std::vector<Inputs> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    group.use(rank);
    inputs.push_back(make_inputs(config, tokens, 3, 1000u * static_cast<unsigned>(rank)));
  }
  return inputs;
}

/// The median over calls of the time that the slowest rank took.
double median_us(test::GpuGroup& group, const std::vector<Inputs>& inputs, std::int64_t tokens,
                 int repeats, const sm90::GpuOverrides& overrides) {
  const int ranks = static_cast<int>(inputs.size());
  const std::size_t calls = static_cast<std::size_t>(repeats) + 3;
  std::vector<std::vector<device::Event>> begin(inputs.size());
  std::vector<std::vector<device::Event>> end(inputs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    group.use(rank);
    begin[rank] = std::vector<device::Event>(calls);
    end[rank] = std::vector<device::Event>(calls);
  }
  for (std::size_t i = 0; i < calls; ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      group.use(rank);
      const Inputs& of = inputs[rank];
      const std::size_t n = i % of.x.size();
      cudaStream_t stream = group.stream(rank);
      const auto copy = [&](void* target, const device::Memory& from) {
        device::check(
            cudaMemcpyAsync(target, from.get(), from.bytes(), cudaMemcpyDeviceToDevice, stream),
            "copying inputs");
      };
      const sm90::GpuBatch to = group.layer(rank).batch();
      copy(to.x, of.x[n]);
      copy(to.x_scales, of.scales[n]);
      copy(to.experts, of.ids[n]);
      copy(to.weights, of.weights[n]);
      begin[rank][i].record(stream);
      group.layer(rank).forward(tokens, group.y(rank), stream, overrides);
      end[rank][i].record(stream);
    }
  }
  std::vector<double> times(calls, 0.0);
  for (int rank = 0; rank < ranks; ++rank) {
    group.use(rank);
    group.layer(rank).wait(group.stream(rank));
    for (std::size_t i = 0; i < calls; ++i) {
      times[i] = std::max(times[i], end[rank][i].microseconds_since(begin[rank][i]));
    }
  }
  times.erase(times.begin(), times.begin() + 3);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string device_name() {
  cudaDeviceProp properties{};
  device::check(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  return properties.name;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// What is measured at each number of tokens.
std::vector<sm90::GpuOverrides> variants(const Options& options) {
  std::vector<sm90::GpuOverrides> all;
  const std::vector<int> tiles = options.tiles.empty() ? std::vector<int>{0} : options.tiles;
  const std::vector<std::int64_t> k1 =
      options.k1.empty() ? std::vector<std::int64_t>{0} : options.k1;
  for (const std::string& execution : options.executions) {
    for (const int tile : tiles) {
      for (const std::int64_t blocks : k1) {
        sm90::GpuOverrides overrides{.execution = parse_execution(execution)};
        if (tile > 0) overrides.token_tile = tile;
        if (options.waves > 0) overrides.experts_per_wave = options.waves;
        const bool split = overrides.execution == Execution::split;
        if (split && blocks > 0) overrides.k1_blocks = blocks;
        all.push_back(overrides);
        if (!split) break;
      }
    }
  }
  return all;
}

std::string multiprocessors(const sm90::GpuPlan& plan) {
  if (plan.execution == Execution::fused) return std::to_string(plan.blocks);
  return fmt::format("{}+{}", plan.k1_blocks, plan.k2_blocks);
}

std::string kernel_name(const sm90::GpuPlan& plan) {
  const std::string tile = fmt::format("{} {} tokens x {} rows", name_of(plan.execution),
                                       plan.kernel.tokens, plan.kernel.rows());
  if (plan.execution == Execution::fused) return tile;
  return tile + ", multiprocessors " + multiprocessors(plan);
}

void run(const Shape& shape, const Options& options, const std::string& command) {
  LayerConfig config;
  config.recipe = options.recipe;
  config.hidden = shape.hidden;
  config.intermediate = shape.intermediate;
  const bool sharing = options.share > 0;
  const int ranks = sharing ? options.share : options.gpus;
  config.experts = sharing ? shape.experts : shape.experts * ranks;
  config.top_k = shape.top_k;
  config.max_tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const test::LayerData data = test::make_layer_data(config, 1, {.distinct_experts = 2});
  test::GpuGroup group(config, data.weights, ranks, std::chrono::seconds(2),
                       sharing ? test::Placement::shared_device : test::Placement::device_per_rank);
  nlohmann::json records = nlohmann::json::array();
  fmt::print("{:>6} {:>6} {:>9} {:>5} {:>4} {:>9} {:>8} {:>8} {:>8} {:>7} {:>7}\n", "tokens",
             "exec", "SMs", "tile", "wave", "us", "peer", "target", "floor", "TFLOPS", "TB/s");
  for (const std::int64_t tokens : options.tokens) {
    const std::int64_t of_rank = sharing ? tokens / ranks : tokens;
    const std::vector<Inputs> inputs = make_inputs_of_ranks(group, config, of_rank, ranks);
    for (const sm90::GpuOverrides& overrides : variants(options)) {
      const sm90::GpuPlan plan = group.layer(0).plan(of_rank, overrides);
      const double us = median_us(group, inputs, of_rank, options.repeats, overrides);
      const double flops =
          6.0 * static_cast<double>(tokens * config.top_k * config.hidden * config.intermediate);
      // A rank's share of the experts that its own tokens hit; other ranks' tokens hit others too.
      const double bytes = static_cast<double>(std::min(inputs[0].experts_hit, shape.experts) *
                                               group.layer(0).expert_bytes());
      const double floor = std::max(bytes / 4.53e6, flops / 1300e6);
      Known known{tokens, 0, 0};
      for (const Known& k : shape.known) {
        if (k.tokens == tokens) known = k;
      }
      if (options.recipe == Recipe::fp8_fp8) {
        known = {tokens, fp8_peer(shape.name, tokens, known.peer), 0};
      }
      fmt::print(
          "{:>6} {:>6} {:>9} {:>5} {:>4} {:>9.1f} {:>8.1f} {:>8.0f} {:>8.0f} {:>7.0f} {:>7.2f}\n",
          tokens, name_of(plan.execution), multiprocessors(plan), plan.kernel.tokens,
          plan.experts_per_wave, us, known.peer, known.target, floor, flops / us / 1e6,
          bytes / us / 1e6);
      std::fflush(stdout);
      records.push_back({{"kernel", kernel_name(plan)},
                         {"recipe", name_of(options.recipe)},
                         {"execution", name_of(plan.execution)},
                         {"ranks", ranks},
                         {"shape", shape.name},
                         {"tokens", tokens},
                         {"us", us},
                         {"tflops", flops / us / 1e6},
                         {"gbps", bytes / us / 1e3},
                         {"device", device_name()},
                         {"commit", options.commit},
                         {"date", today()},
                         {"command", command}});
    }
  }
  if (!options.json.empty()) std::ofstream(options.json) << records.dump(1) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Median time of one call on one Hopper GPU"};
  app.add_option("--shape", options.shape, "v3, flash, pro, qwen3 or gpt-oss");
  std::string recipe = "fp8_fp4";
  app.add_option("--recipe", recipe, "fp8_fp4 or fp8_fp8");
  app.add_option("--tokens", options.tokens, "tokens of a call")->delimiter(',');
  app.add_option("--tiles", options.tiles, "token tiles to try instead of the plan's choice")
      ->delimiter(',');
  app.add_option("--executions", options.executions, "fused, split, staged")->delimiter(',');
  app.add_option("--k1", options.k1,
                 "multiprocessors of the split's K1 instead of the plan's choice")
      ->delimiter(',');
  app.add_option("--waves", options.waves, "experts per wave instead of the plan's choice");
  app.add_option("--repeats", options.repeats, "timed calls of each");
  app.add_option("--gpus", options.gpus,
                 "ranks, one on each GPU; experts and tokens per rank stay");
  app.add_option("--share", options.share,
                 "ranks that share one GPU: its multiprocessors, the tokens and the experts");
  app.add_option("--json", options.json, "file for the records");
  app.add_option("--commit", options.commit, "what the records say was measured");
  CLI11_PARSE(app, argc, argv);
  std::string command;
  for (int i = 0; i < argc; ++i)
    command += (i == 0 ? "bench_sm90_layer" : std::string(" ") + argv[i]);
  try {
    options.recipe = parse_recipe(recipe);
    if (device::usable_devices() == 0) {
      fmt::print("no GPU of compute capability 9.0 here\n");
      return 0;
    }
    for (const Shape& shape : kShapes) {
      if (options.shape == shape.name) run(shape, options, command);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
