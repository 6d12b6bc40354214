#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/layer_plan.hpp"
#include "base/names.hpp"
#include "cli/commands.hpp"
#include "cli/cuda_plan_report.hpp"
#include "cli/footprint.hpp"
#include "cli/layer_options.hpp"
#include "cli/prediction.hpp"
#include "cli/report.hpp"
#include "cli/text.hpp"

namespace megamoe::cli {
namespace {

struct PlanOptions {
  std::shared_ptr<LayerOptionValues> layer;
  GivenRates rates;
  std::string json;
};

/// One choice of the plan.
struct Decision {
  const char* what;
  std::string value;
  const char* by;
  std::string heuristic;  ///< what it would be, or is, without the user
};

template <class Value>
const char* by(const std::optional<Value>& given) {
  return given ? "user" : "heuristic";
}

std::vector<Decision> decisions(const Plan& plan, const Plan& without, const LayerOptions& given) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return {{"kernels", std::string(name_of(plan.machine.instruction_set)), by(given.instruction_set),
           std::string(name_of(without.machine.instruction_set))},
          {"workers", text(plan.workers), by(given.workers), text(without.workers)},
          {"K1 workers", text(plan.k1_workers), by(given.k1_workers), text(without.k1_workers)},
          {"K2 workers", text(plan.k2_workers), by(given.k2_workers), text(without.k2_workers)},
          {"block rows", text(plan.block_rows), by(given.block_rows), text(without.block_rows)},
          {"experts/wave", text(plan.walk.experts_per_wave), "heuristic",
           text(without.walk.experts_per_wave)}};
}

std::string decision_table(const std::vector<Decision>& decisions) {
  Table table({"choice", "value", "decided by", "heuristic says"});
  for (const Decision& d : decisions) table.add({d.what, d.value, d.by, d.heuristic});
  return table.str();
}

std::string memory_table(const Plan& plan, const Footprint& footprint, std::int64_t tokens) {
  Table table({"per rank", "reserved", "one call touches"});
  std::int64_t touched = 0;
  for (const Region& region : plan.arena.regions) {
    const std::int64_t bytes = touched_bytes(region, plan, tokens);
    touched += bytes;
    table.add({std::string("  ") + region.name, human_bytes(region.bytes()), human_bytes(bytes)});
  }
  table.add({"arena", human_bytes(footprint.arena_bytes), human_bytes(touched)});
  table.add({"packed weights", human_bytes(footprint.weight_bytes),
             fmt::format("{} an expert hit", human_bytes(footprint.expert_bytes))});
  table.add(
      {"scratch", human_bytes(footprint.scratch_bytes), human_bytes(footprint.scratch_bytes)});
  table.add({"weights to pack", human_bytes(footprint.source_bytes), "until packed"});
  return table.str();
}

nlohmann::json to_json(const Plan& plan, const Footprint& footprint, std::int64_t tokens,
                       const std::vector<Decision>& decisions) {
  nlohmann::json regions = nlohmann::json::object();
  std::int64_t touched = 0;
  for (const Region& region : plan.arena.regions) {
    regions[region.name] = region.bytes();
    touched += touched_bytes(region, plan, tokens);
  }
  nlohmann::json choices = nlohmann::json::object();
  for (const Decision& d : decisions) {
    choices[d.what] = {{"value", d.value}, {"by", d.by}, {"heuristic", d.heuristic}};
  }
  return {{"ranks", plan.shape.ranks},
          {"tokens", tokens},
          {"capacity", plan.shape.max_tokens},
          {"explanation", plan.explain()},
          {"decisions", choices},
          {"arena_bytes", footprint.arena_bytes},
          {"arena_regions", regions},
          {"arena_touched_bytes", touched},
          {"weight_bytes", footprint.weight_bytes},
          {"expert_bytes", footprint.expert_bytes},
          {"scratch_bytes", footprint.scratch_bytes},
          {"source_bytes", footprint.source_bytes}};
}

nlohmann::json to_json(const Prediction& prediction, const MachineRates& rates) {
  const Bound bound = bound_of(prediction.weight_bytes, prediction.flops, rates);
  return {{"experts_hit", prediction.experts_hit},
          {"weight_bytes", prediction.weight_bytes},
          {"flops", prediction.flops},
          {"gbps", rates.bytes_per_ns},
          {"gflops", rates.flops_per_ns},
          {"memory_us", bound.memory_ns / 1e3},
          {"arithmetic_us", bound.arithmetic_ns / 1e3},
          {"us", bound.ns() / 1e3},
          {"bound", bound.name()}};
}

void print_prediction(const Prediction& prediction, const MachineRates& rates) {
  const Bound bound = bound_of(prediction.weight_bytes, prediction.flops, rates);
  const auto ns = [](double value) { return duration(std::llround(value)); };
  fmt::print(
      "machine: {}\n"
      "a call touches {:.1f} experts over all ranks, if routes spread evenly: {} of packed "
      "weights, "
      "{:.3g} GFLOP\n"
      "no call is faster than {}: {} for the weights, {} for the arithmetic; {} is the bound\n",
      describe(rates), prediction.experts_hit, human_bytes(std::llround(prediction.weight_bytes)),
      prediction.flops / 1e9, ns(bound.ns()), ns(bound.memory_ns), ns(bound.arithmetic_ns),
      bound.name());
}

/// Where ranks that this process forks would run; the first and the last where they are many.
void print_places(const std::vector<RankPlace>& places, const LayerOptions& options) {
  constexpr std::size_t kMostLines = 16;
  fmt::print("host: {}\n", host_topology().describe());
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places.size() > kMostLines && rank == kMostLines - 1) {
      fmt::print("  ...\n");
      rank = places.size() - 1;
    }
    fmt::print("  rank {}: {}: {}\n", rank, places[rank].describe(),
               bind_rank(host_topology(), places[rank], options.bind_threads).describe());
  }
  fmt::print("\n");
}

nlohmann::json to_json(const std::vector<RankPlace>& places, const LayerOptions& options) {
  nlohmann::json all = nlohmann::json::array();
  for (const RankPlace& place : places) {
    const RankBinding binding = bind_rank(host_topology(), place, options.bind_threads);
    all.push_back({{"cpus", place.cpus},
                   {"nodes", place.nodes},
                   {"threads_bound", !binding.threads.empty()},
                   {"memory_nodes", binding.memory}});
  }
  return all;
}

/// Whether the options come to CUDA devices, which here need not be there.
bool is_for_cuda(const LayerOptionValues& values, const LayerSource& source) {
  if (values.backend != Backend::automatic) return values.backend == Backend::cuda;
  const RankTeam team = RankTeam::forked(source.ranks(), values.deadline);
  return choose_team(team, source, values).team.backend() == Backend::cuda;
}

int plan_layer_of(const PlanOptions& options) {
  LayerRequest request = options.layer->layer;
  request.ranks = options.layer->ranks.value_or(request.ranks);
  const LayerSource source(request);
  if (is_for_cuda(*options.layer, source)) {
    auto document = report_cuda_plan(source, options.layer->plan, options.rates);
    add_note(source, document);
    if (!options.json.empty()) write_json(options.json, document);
    return 0;
  }
  const Plan plan = plan_layer(source.config(), source.ranks(), options.layer->plan);
  const Plan without = plan_layer(source.config(), source.ranks(), {});
  const Footprint footprint = footprint_of(source, plan);
  const std::int64_t tokens = source.config().max_tokens;
  const auto choices = decisions(plan, without, options.layer->plan);

  fmt::print("{}\n{}\n{}\n{}\n{}\n", source.description(), note_line(source), plan.explain(),
             decision_table(choices), memory_table(plan, footprint, tokens));
  const HostMemory host = available_host_memory();
  fmt::print(
      "Arena pages come as they are touched: all of them only when every token of every rank is "
      "routed to one rank.\n{} ranks need up to {}, and {} are available ({})\n\n",
      source.ranks(), human_bytes(source.ranks() * footprint.bytes()),
      human_bytes(host.available_bytes), host.limited_by);
  const std::vector<RankPlace> places = places_of_forked(source.ranks());
  print_places(places, options.layer->plan);
  std::fflush(stdout);

  const Prediction prediction = predict(source, plan);
  const MachineRates rates =
      find_rates(min64(usable_cores(), source.ranks() * plan.workers), options.rates);
  print_prediction(prediction, rates);
  if (!options.json.empty()) {
    nlohmann::json document = to_json(plan, footprint, tokens, choices);
    document["layer"] = source.description();
    add_note(source, document);
    document["host"] = host_topology().describe();
    document["places"] = to_json(places, options.layer->plan);
    document["prediction"] = to_json(prediction, rates);
    write_json(options.json, document);
  }
  return 0;
}

}  // namespace

Command add_plan(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "plan", "What would run and why, what it takes, and how fast it can be at most");
  auto options = std::make_shared<PlanOptions>();
  options->layer = add_layer_options(command);
  add_rate_options(command, options->rates);
  command.add_option("--json", options->json, "Write the plan as JSON");
  command.footer(
      "Examples:\n"
      "  megamoe plan --preset deepseek-v3 --ranks 8 --tokens 128\n"
      "  megamoe plan --preset gpt-oss-120b --tokens 4k --block-rows 64 --json plan.json\n"
      "  megamoe plan --backend cuda --preset deepseek-v4-flash --no-shared-experts --ranks 8\n"
      "  megamoe plan --preset mixtral-8x7b --bandwidth 400 --gflops 3000");
  return [options] { return plan_layer_of(*options); };
}

}  // namespace megamoe::cli
