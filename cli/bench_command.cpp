#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megamoe/backend.hpp"

#include "api/cuda_plan.hpp"
#include "api/layer_plan.hpp"
#include "base/check.hpp"
#include "base/names.hpp"
#include "cli/bench_records.hpp"
#include "cli/commands.hpp"
#include "cli/footprint.hpp"
#include "cli/gpu_rates.hpp"
#include "cli/gpu_sweep.hpp"
#include "cli/layer_options.hpp"
#include "cli/mqa_bench.hpp"
#include "cli/parsed_option.hpp"
#include "cli/plot.hpp"
#include "cli/report.hpp"
#include "cli/text.hpp"

namespace megamoe::cli {
namespace {

struct BenchOptions {
  bool mqa_logits = false;  ///< the kernel; else a layer
  std::shared_ptr<MqaBenchValues> mqa;
  std::shared_ptr<LayerOptionValues> layer;
  std::vector<std::int64_t> tokens{1, 4, 16, 64, 256};
  std::vector<Execution> executions{Execution::fused};
  std::int64_t calls = 9;
  std::int64_t warm_up = 2;
  GivenRates rates;
  std::string json;
  std::string plot;
};

std::vector<Execution> parse_executions(const std::string& text) {
  if (text == "all") return {Execution::fused, Execution::split, Execution::staged};
  std::vector<Execution> executions;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    executions.push_back(parse_execution(name));
  }
  check_argument(!executions.empty(), "no execution: fused, split, staged or all is wanted");
  return executions;
}

/// arithmetic: what the machine's rate is that of, "f32".
std::string point_table(const std::vector<SweepPoint>& points, const MachineRates& rates,
                        const char* arithmetic) {
  Table table({"execution", "tokens", "rows/expert hit", "us", "least us", "GFLOP/s",
               "weights GB/s", "% of bandwidth", fmt::format("% of {}", arithmetic), "bound",
               "% of bound"});
  for (const SweepPoint& point : points) {
    const double flops = point.flops / point.median_ns;
    const double bytes = point.weight_bytes / point.median_ns;
    const Bound bound = bound_of(point.weight_bytes, point.flops, rates);
    table.add({std::string(name_of(point.execution)), std::to_string(point.tokens),
               fmt::format("{:.1f}", point.rows / std::max(1.0, point.experts_hit)),
               fmt::format("{:.1f}", point.median_ns / 1e3),
               fmt::format("{:.1f}", point.least_ns / 1e3), fmt::format("{:.1f}", flops),
               fmt::format("{:.2f}", bytes),
               fmt::format("{:.0f}", 100 * bytes / rates.bytes_per_ns),
               fmt::format("{:.0f}", 100 * flops / rates.flops_per_ns), std::string(bound.name()),
               fmt::format("{:.0f}", 100 * bound.ns() / point.median_ns)});
  }
  return table.str();
}

void write_plot(const std::string& path, const std::string& title, const std::string& subtitle,
                const std::vector<SweepPoint>& points) {
  std::map<Execution, Series> by_execution;
  for (const SweepPoint& point : points) {
    Series& series = by_execution[point.execution];
    series.name = name_of(point.execution);
    series.points.emplace_back(point.tokens, point.median_ns / 1e3);
  }
  Chart chart{title, subtitle, "tokens per rank", "time of a call, us (median)", {}};
  for (auto& [execution, series] : by_execution) {
    std::sort(series.points.begin(), series.points.end());
    chart.series.push_back(std::move(series));
  }
  std::ofstream file(path);
  file << line_chart(chart);
  file.close();
  if (!file)
    fail(ErrorCode::io, "{} could not be written: is the folder there and writable?", path);
  fmt::print("wrote {}\n", path);
}

/// What a backend brought.
struct Measured {
  std::vector<SweepPoint> points;
  std::string kernel;   ///< "cpu avx2"
  std::string device;   ///< its name
  std::string machine;  ///< its rates in words
  MachineRates rates;
  const char* arithmetic = "f32";
};

void report(const BenchOptions& options, const LayerSource& source, const Measured& measured) {
  fmt::print("machine: {}, {}\n\n{}", measured.device, measured.machine,
             point_table(measured.points, measured.rates, measured.arithmetic));
  if (!options.json.empty()) {
    nlohmann::json records =
        bench_records(source, measured.kernel, measured.device, measured.points);
    for (nlohmann::json& record : records) add_note(source, record);
    append_records(options.json, records);
    fmt::print("added {} records to {}\n", measured.points.size(), options.json);
  }
  if (!options.plot.empty()) {
    const std::string title = fmt::format("{}, {}, {} ranks", source.description(),
                                          name_of(source.config().recipe), source.ranks());
    write_plot(options.plot, title, fmt::format("{}, {}", measured.kernel, measured.device),
               measured.points);
  }
}

SweepRequest sweep_request(const BenchOptions& options) {
  return {.tokens = options.tokens,
          .executions = options.executions,
          .layer = options.layer->plan,
          .warm_up = options.warm_up,
          .calls = options.calls};
}

void print_headline(const LayerSource& source, const TeamChoice& choice, const std::string& what) {
  const LayerConfig& config = source.config();
  fmt::print("{}: H {} I {} E {} (+{} shared) k {}, {}; {}, {}, backend {}{}\n{}",
             source.description(), config.hidden, config.intermediate, config.experts,
             config.shared_experts, config.top_k, name_of(config.recipe), choice.team.description(),
             what, name_of(choice.team.backend()),
             choice.reason.empty() ? "" : fmt::format(" ({})", choice.reason), note_line(source));
  std::fflush(stdout);
}

Measured bench_cpu(const BenchOptions& options, const LayerSource& source, TeamChoice& choice) {
  RankTeam& team = choice.team;
  const Plan plan =
      plan_layer(source.config(), source.ranks(), options.layer->plan, team.cores_per_rank());
  team.agree_on(plan);
  check_footprint(footprint_of(source, plan), source.ranks(), available_host_memory());
  const std::string kernels(name_of(plan.machine.instruction_set));
  if (team.leads()) {
    print_headline(source, choice, fmt::format("{} workers each, {}", plan.workers, kernels));
  }
  Measured measured{.points = sweep(source, sweep_request(options), team)};
  if (!team.leads()) return measured;
  measured.kernel = "cpu " + kernels;
  measured.device = device_name();
  measured.rates = find_rates(min64(usable_cores(), source.ranks() * plan.workers), options.rates);
  measured.machine = describe(measured.rates);
  return measured;
}

Measured bench_cuda(const BenchOptions& options, const LayerSource& source, TeamChoice& choice) {
  RankTeam& team = choice.team;
  if (team.leads()) print_headline(source, choice, "x in FP8");
  const std::int64_t devices = min64(source.ranks(), cuda_devices());
  Measured measured{.points = gpu_sweep(source, sweep_request(options), team)};
  measured.kernel = "cuda sm90";
  measured.device = gpu_name(devices);
  measured.rates = gpu_rates(devices, kHopperMultiprocessors, options.rates);
  measured.machine = describe_gpu(measured.rates);
  measured.arithmetic = "FP8";
  return measured;
}

bool parse_kernel(const std::string& text) {
  check_argument(text == "layer" || text == "mqa-logits",
                 "'{}' is no kernel: layer or mqa-logits is wanted", text);
  return text == "mqa-logits";
}

int bench_mqa(const BenchOptions& options) {
  const LayerOptionValues& values = *options.layer;
  return bench_mqa_logits(
      {.values = *options.mqa,
       .rows = options.tokens,
       .backend = values.backend,
       .cpu = {.workers = values.plan.workers, .instruction_set = values.plan.instruction_set},
       .warm_up = options.warm_up,
       .calls = options.calls,
       .json = options.json});
}

int bench(BenchOptions& options) {
  if (options.mqa_logits) return bench_mqa(options);
  LayerOptionValues& values = *options.layer;
  const RankTeam asked = make_team(values, process_environment());
  values.layer.tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const LayerSource source(values.layer);
  TeamChoice choice = choose_team(asked, source, values);
  const Measured measured = choice.team.backend() == Backend::cuda
                                ? bench_cuda(options, source, choice)
                                : bench_cpu(options, source, choice);
  if (choice.team.leads()) report(options, source, measured);
  return 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "bench", "Time one layer over numbers of tokens, beside what the machine can do");
  auto options = std::make_shared<BenchOptions>();
  options->layer = add_sweep_options(command);
  add_parsed(command, "--tokens", options->tokens, parse_counts,
             "Tokens per rank, one point each (default 1,4,16,64,256)");
  add_parsed(command, "--execution", options->executions, parse_executions,
             "fused, split, staged, several with commas, or all (default fused)");
  add_parsed(command, "--calls", options->calls, parse_positive,
             "Calls of a point; the median is shown (default 9)");
  add_parsed(command, "--warm-up", options->warm_up, parse_count, "Calls before those (default 2)");
  add_parsed(command, "--kernel", options->mqa_logits, parse_kernel,
             "layer, or mqa-logits: FP8 MQA logits of so many rows (--tokens) (default layer)");
  options->mqa = add_mqa_bench_options(command);
  add_rate_options(command, options->rates);
  command.add_option("--json", options->json, "Add a record per point to this JSON array");
  command.add_option("--plot", options->plot, "Write time over tokens as an SVG picture");
  command.footer(
      "Examples:\n"
      "  megamoe bench\n"
      "  megamoe bench --tokens 1,16,256 --execution all --json bench.json --plot bench.svg\n"
      "  megamoe bench --backend cuda --preset deepseek-v4-flash --no-shared-experts --experts 32 "
      "--ranks 1 --tokens 8,64,512,8k\n"
      "  megamoe bench --kernel mqa-logits --tokens 64,4096 --keys 65536 --weights f16\n"
      "  megamoe bench --preset gpt-oss-120b --experts 32 --ranks 1 --tokens 1,8,4k");
  return [options] { return bench(*options); };
}

}  // namespace megamoe::cli
