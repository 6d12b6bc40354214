// The MQA logits on one Hopper GPU: median times, beside a peer's figures and the ceiling.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mqa_gpu.hpp"

namespace {

using namespace megamoe;

struct Case {
  const char* name;  ///< "4096 x 65536, 64 heads, causal" in the records
  test::MqaSize size;
  test::Ranges ranges;
  double peer_us;  ///< f32 weights, the same kind of GPU; 0: none was measured
};

const Case kCases[] = {
    {"S4096 Skv65536 h64 d128", {4096, 65536, 64, 128}, test::Ranges::whole, 4408},
    {"S4096 Skv65536 h32 d128", {4096, 65536, 32, 128}, test::Ranges::whole, 2449},
    {"S4096 Skv65536 h64 d128 causal", {4096, 65536, 64, 128}, test::Ranges::causal, 2188},
    {"S4096 Skv4096 h64 d128 causal", {4096, 4096, 64, 128}, test::Ranges::causal, 147},
    {"S64 Skv131072 h64 d128", {64, 131072, 64, 128}, test::Ranges::whole, 493},
    {"S4096 Skv65536 h64 d64", {4096, 65536, 64, 64}, test::Ranges::whole, 0},
};

struct PagedCase {
  const char* name;
  test::PagedSize size;
};

const PagedCase kPagedCases[] = {
    {"paged B64 n1 ctx16384 h64 d128", {64, 1, 64, 128, 256}},
    {"paged B64 n2 ctx16384 h64 d128", {64, 2, 64, 128, 256}},
};

struct Options {
  int repeats = 9;
  std::string only;
  std::string json;
  std::string commit = "unknown";
};

/// The ranges of a row of a causal call are those of the last rows of all keys when keys > rows,
/// as a peer's benchmark has them: row i of S sees i * keys / S of them.
void make_causal(test::DenseData& data) {
  const auto rows = data.input.queries.rows;
  for (std::int64_t i = 0; i < rows; ++i) {
    data.ends[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>((i + 1) * data.input.keys / rows);
  }
}

template <class Input>
double median_us(const Input& input, const MqaLogitsOutput& output, int repeats) {
  device::Stream stream;
  std::vector<device::Event> begin(static_cast<std::size_t>(repeats) + 2);
  std::vector<device::Event> end(begin.size());
  for (std::size_t i = 0; i < begin.size(); ++i) {
    begin[i].record(stream.get());
    mqa_logits_on_gpu(input, output, stream.get());
    end[i].record(stream.get());
  }
  stream.wait();
  std::vector<double> times;
  for (std::size_t i = 2; i < begin.size(); ++i)
    times.push_back(end[i].microseconds_since(begin[i]));
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

const char* name_of(MqaWeightFormat format) {
  return format == MqaWeightFormat::f32 ? "f32" : "f16";
}

struct Report {
  const Options& options;
  std::string command;
  nlohmann::json records = nlohmann::json::array();

  void add(const std::string& shape, MqaWeightFormat format, std::int64_t rows, double us,
           double flops, double bytes, double peer_us) {
    const std::string peer = peer_us > 0 ? fmt::format("{:.2f} x", peer_us / us) : "";
    fmt::print("{:<34} {:>4} {:>9.1f} {:>8.0f} {:>8.0f} {:>8}\n", shape, name_of(format), us,
               flops / us / 1e6, bytes / us / 1e3, peer);
    std::fflush(stdout);
    records.push_back({{"kernel", fmt::format("mqa-logits {} weights", name_of(format))},
                       {"recipe", "e4m3"},
                       {"execution", "single"},
                       {"ranks", 1},
                       {"shape", shape},
                       {"tokens", rows},
                       {"us", us},
                       {"tflops", flops / us / 1e6},
                       {"gbps", bytes / us / 1e3},
                       {"device", device_name()},
                       {"commit", options.commit},
                       {"date", today()},
                       {"command", command}});
  }
};

/// Logits times heads times head_dim times 2; logits in and keys, queries once.
void run_dense(const Case& it, Report& report) {
  test::DenseData data(it.size, it.ranges, MqaWeightFormat::f32, 1);
  if (it.ranges == test::Ranges::causal) make_causal(data);
  const test::GpuDense gpu(data);
  device::Memory logits(it.size.rows * it.size.keys * 4, "logits");
  double count = 0;
  for (std::int64_t i = 0; i < it.size.rows; ++i) {
    count += static_cast<double>(data.ends.empty() ? it.size.keys
                                                   : data.ends[static_cast<std::size_t>(i)]);
  }
  const double flops = 2.0 * count * static_cast<double>(it.size.heads * it.size.head_dim);
  const double bytes = 4 * count + static_cast<double>(data.kv.size() + 4 * data.scales.size() +
                                                       data.queries.q.size());
  for (const auto format : {MqaWeightFormat::f32, MqaWeightFormat::f16}) {
    MqaLogitsInput input = gpu.input;
    input.queries.weight_format = format;
    input.queries.weights =
        format == MqaWeightFormat::f32 ? gpu.queries.f32.as<void>() : gpu.queries.f16.as<void>();
    const double us = median_us(input, {.logits = logits.get(), .row_stride = it.size.keys},
                                report.options.repeats);
    report.add(it.name, format, it.size.rows, us, flops, bytes, it.peer_us);
  }
}

void run_paged(const PagedCase& it, Report& report) {
  test::PagedData data(it.size, MqaContextLengths::per_sequence, MqaWeightFormat::f32, 2);
  const auto context = static_cast<std::int32_t>(it.size.max_blocks * kMqaBlockKeys);
  data.input.max_context = context;
  std::fill(data.contexts.begin(), data.contexts.end(), context);
  data.fill_table(it.size, MqaContextLengths::per_sequence, data.input.blocks);
  const test::GpuPaged gpu(data);
  const std::int64_t rows = data.input.queries.rows;
  device::Memory logits(rows * context * 4, "logits");
  const double count = static_cast<double>(rows) * context;
  const double flops = 2.0 * count * static_cast<double>(it.size.heads * it.size.head_dim);
  const double bytes = 4 * count + static_cast<double>(data.cache.size());
  for (const auto format : {MqaWeightFormat::f32, MqaWeightFormat::f16}) {
    PagedMqaLogitsInput input = gpu.input;
    input.queries.weight_format = format;
    input.queries.weights =
        format == MqaWeightFormat::f32 ? gpu.queries.f32.as<void>() : gpu.queries.f16.as<void>();
    const double us =
        median_us(input, {.logits = logits.get(), .row_stride = context}, report.options.repeats);
    report.add(it.name, format, rows, us, flops, bytes, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Median time of the FP8 MQA logits on one Hopper GPU"};
  app.add_option("--repeats", options.repeats, "timed calls of each");
  app.add_option("--only", options.only, "cases whose name contains this");
  app.add_option("--json", options.json, "file for the records");
  app.add_option("--commit", options.commit, "what the records say was measured");
  CLI11_PARSE(app, argc, argv);
  std::string command = "bench_mqa_logits_sm90";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    if (device::usable_devices() == 0) {
      fmt::print("no GPU of compute capability 9.0 here\n");
      return 0;
    }
    Report report{options, command};
    const auto chosen = [&](const char* name) {
      return std::string(name).find(options.only) != std::string::npos;
    };
    fmt::print("{:<34} {:>4} {:>9} {:>8} {:>8} {:>8}\n", "shape", "w", "us", "TFLOPS", "GB/s",
               "peer");
    for (const Case& it : kCases) {
      if (chosen(it.name)) run_dense(it, report);
    }
    for (const PagedCase& it : kPagedCases) {
      if (chosen(it.name)) run_paged(it, report);
    }
    if (!options.json.empty()) std::ofstream(options.json) << report.records.dump(1) << "\n";
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
