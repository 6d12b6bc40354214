#include "cli/mqa_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "megamoe/backend.hpp"

#include "base/check.hpp"
#include "cli/bench_records.hpp"
#include "cli/gpu_rates.hpp"
#include "cli/layer_options.hpp"
#include "cli/machine_rates.hpp"
#include "cli/parsed_option.hpp"
#include "cli/text.hpp"
#include "device/gpu.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/f16.hpp"

namespace megamoe::cli {
namespace {

MqaWeightFormat parse_weights(const std::string& text) {
  if (text == "f32") return MqaWeightFormat::f32;
  check_argument(text == "f16", "'{}' is no format of weights: f32 or f16 is wanted", text);
  return MqaWeightFormat::f16;
}

/// One call's numbers in host memory: normal values that fill E4M3, scales and weights around 1.
struct Numbers {
  std::vector<std::byte> q, kv, weights;
  std::vector<float> scales;
  std::vector<std::int32_t> ends;
  double logits = 0;  ///< that are computed

  Numbers(const MqaBenchValues& values, std::int64_t rows) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<std::byte>& to, std::int64_t count) {
      to.resize(static_cast<std::size_t>(count));
      for (std::byte& b : to) b = std::byte{float_to_e4m3(110.0f * normal(random))};
    };
    fill(q, rows * values.heads * values.head_dim);
    fill(kv, values.keys * values.head_dim);
    for (std::int64_t i = 0; i < values.keys; ++i) scales.push_back(1.0f + 0.1f * normal(random));
    for (std::int64_t i = 0; i < rows * values.heads; ++i) {
      const float weight = normal(random);
      const std::uint16_t half = float_to_f16(weight);
      const bool f32 = values.weights == MqaWeightFormat::f32;
      const auto* bytes = f32 ? reinterpret_cast<const std::byte*>(&weight)
                              : reinterpret_cast<const std::byte*>(&half);
      weights.insert(weights.end(), bytes, bytes + (f32 ? 4 : 2));
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t end = values.causal ? (i + 1) * values.keys / rows : values.keys;
      ends.push_back(static_cast<std::int32_t>(end));
      logits += static_cast<double>(end);
    }
  }

  MqaLogitsInput view(const MqaBenchValues& values) const {
    return {.queries = {.rows = static_cast<std::int64_t>(ends.size()),
                        .heads = values.heads,
                        .head_dim = values.head_dim,
                        .q = q.data(),
                        .weights = weights.data(),
                        .weight_format = values.weights},
            .keys = values.keys,
            .kv = kv.data(),
            .kv_scales = scales.data(),
            .ends = ends.data()};
  }
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double time_on_cpu(const MqaBenchRequest& request, const MqaLogitsInput& input) {
  std::vector<float> logits(static_cast<std::size_t>(input.queries.rows * input.keys));
  MqaLogits cpu(request.cpu);
  std::vector<double> times;
  for (std::int64_t call = 0; call < request.warm_up + request.calls; ++call) {
    const auto begin = std::chrono::steady_clock::now();
    cpu.run(input, MqaLogitsOutput{.logits = logits.data(), .row_stride = input.keys});
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (call >= request.warm_up) times.push_back(took.count());
  }
  return median(times);
}

template <class T>
device::Memory upload(const std::vector<T>& from) {
  const auto bytes = static_cast<std::int64_t>(from.size() * sizeof(T));
  device::Memory memory(std::max<std::int64_t>(bytes, 16), "an input of the MQA logits");
  memory.copy_from(from.data(), bytes);
  return memory;
}

double time_on_gpu(const MqaBenchRequest& request, const Numbers& numbers) {
  const device::Memory q = upload(numbers.q);
  const device::Memory kv = upload(numbers.kv);
  const device::Memory weights = upload(numbers.weights);
  const device::Memory scales = upload(numbers.scales);
  const device::Memory ends = upload(numbers.ends);
  MqaLogitsInput input = numbers.view(request.values);
  input.queries.q = q.get();
  input.queries.weights = weights.get();
  input.kv = kv.get();
  input.kv_scales = scales.as<float>();
  input.ends = ends.as<std::int32_t>();
  const device::Memory logits(input.queries.rows * input.keys * 4, "the logits");
  const device::Stream stream;
  const auto calls = static_cast<std::size_t>(request.warm_up + request.calls);
  std::vector<device::Event> begin(calls);
  std::vector<device::Event> end(calls);
  for (std::size_t call = 0; call < calls; ++call) {
    begin[call].record(stream.get());
    mqa_logits_on_gpu(input, {.logits = logits.get(), .row_stride = input.keys}, stream.get());
    end[call].record(stream.get());
  }
  stream.wait();
  std::vector<double> times;
  for (auto call = static_cast<std::size_t>(request.warm_up); call < calls; ++call) {
    times.push_back(end[call].microseconds_since(begin[call]));
  }
  return median(times);
}

bool runs_on_gpu(Backend backend) {
  if (backend == Backend::automatic) return cuda_devices() > 0;
  if (backend == Backend::cuda && cuda_devices() == 0) {
    fail(ErrorCode::unsupported,
         "--backend cuda: this build or this machine has no GPU of compute capability 9.0: use "
         "--backend cpu");
  }
  return backend == Backend::cuda;
}

}  // namespace

std::shared_ptr<MqaBenchValues> add_mqa_bench_options(CLI::App& command) {
  auto values = std::make_shared<MqaBenchValues>();
  add_parsed(command, "--keys", values->keys, parse_positive,
             "mqa-logits: keys of a call (default 4096)");
  add_parsed(command, "--heads", values->heads, parse_positive,
             "mqa-logits: heads of a row (default 64)");
  add_parsed(command, "--head-dim", values->head_dim, parse_positive,
             "mqa-logits: 32, 64 or 128 (default 128)");
  add_parsed(command, "--weights", values->weights, parse_weights,
             "mqa-logits: f32 or f16 weights of heads (default f32)");
  command.add_flag("--causal", values->causal,
                   "mqa-logits: row i of S sees the first (i + 1) / S of the keys");
  return values;
}

int bench_mqa_logits(const MqaBenchRequest& request) {
  const MqaBenchValues& values = request.values;
  const bool gpu = runs_on_gpu(request.backend);
  const std::string device = gpu ? gpu_name(1) : device_name();
  const char* weights = values.weights == MqaWeightFormat::f32 ? "f32" : "f16";
  fmt::print("FP8 MQA logits: {} keys, {} heads of {}, {} weights{}; {}\n\n", values.keys,
             values.heads, values.head_dim, weights, values.causal ? ", causal" : "", device);
  std::fflush(stdout);
  Table table({"rows", "us", "GFLOP/s", "GB/s"});
  std::vector<MeasuredRecord> records;
  for (const std::int64_t rows : request.rows) {
    const Numbers numbers(values, rows);
    const double us =
        gpu ? time_on_gpu(request, numbers) : time_on_cpu(request, numbers.view(values));
    const double flops = 2 * numbers.logits * static_cast<double>(values.heads * values.head_dim);
    const double bytes = 4 * numbers.logits + static_cast<double>(numbers.q.size()) +
                         static_cast<double>(numbers.kv.size() + 4 * numbers.scales.size());
    table.add({std::to_string(rows), fmt::format("{:.1f}", us),
               fmt::format("{:.1f}", flops / us / 1e3), fmt::format("{:.2f}", bytes / us / 1e3)});
    records.push_back({.kernel = fmt::format("mqa-logits {} weights", weights),
                       .recipe = "e4m3",
                       .execution = "single",
                       .ranks = 1,
                       .shape = fmt::format("S{} Skv{} h{} d{}{}", rows, values.keys, values.heads,
                                            values.head_dim, values.causal ? " causal" : ""),
                       .tokens = rows,
                       .us = us,
                       .tflops = flops / us / 1e6,
                       .gbps = bytes / us / 1e3,
                       .device = device});
  }
  fmt::print("{}", table.str());
  if (!request.json.empty()) {
    append_records(request.json, to_records(records));
    fmt::print("added {} records to {}\n", records.size(), request.json);
  }
  return 0;
}

}  // namespace megamoe::cli
