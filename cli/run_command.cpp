#include <cstdio>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/names.hpp"
#include "checkpoint/safetensors.hpp"
#include "cli/commands.hpp"
#include "cli/footprint.hpp"
#include "cli/layer_options.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"

namespace megamoe::cli {
namespace {

struct RunOptions {
  std::shared_ptr<LayerOptionValues> layer;
  std::string execution = "fused";
  std::string output;
  std::string json;
  std::int64_t calls = 3;
  bool verify = true;
  bool explain = false;
};

void write_output(const std::string& path, const std::vector<float>& y, std::int64_t hidden) {
  const auto bytes = std::as_bytes(std::span(y));
  write_safetensors(path, {{"output",
                            Dtype::f32,
                            {static_cast<std::int64_t>(y.size()) / hidden, hidden},
                            {bytes.data(), bytes.size()}}});
  fmt::print("wrote {}: output [{}, {}] f32\n", path, static_cast<std::int64_t>(y.size()) / hidden,
             hidden);
}

void print_headline(const LayerSource& source, const std::string& execution,
                    const TeamChoice& choice) {
  const LayerConfig& config = source.config();
  fmt::print("{}: H {} I {} E {} (+{} shared) k {}, {}, {}; {} on {}, backend {}{}\n{}",
             source.description(), config.hidden, config.intermediate, config.experts,
             config.shared_experts, config.top_k, name_of(config.recipe),
             name_of(config.activation), execution, choice.team.description(),
             name_of(choice.team.backend()),
             choice.reason.empty() ? "" : fmt::format(" ({})", choice.reason), note_line(source));
  std::fflush(stdout);
}

void print_check(const Check& check) {
  fmt::print(
      "against the f64 reference, {} of {} tokens: relative L2 {:.2e} (at most {:.0e}), symmetric "
      "difference {:.1e}: {}\n",
      check.tokens, check.of, check.relative_l2, check.tolerance, check.symmetric_difference,
      check.passed() ? "right" : "WRONG");
}

int run(const RunOptions& options) {
  const RankTeam asked = make_team(*options.layer, process_environment());
  const LayerSource source(options.layer->layer);
  const LayerConfig& config = source.config();
  TeamChoice choice = choose_team(asked, source, *options.layer);
  RankTeam& team = choice.team;
  if (team.leads()) print_headline(source, options.execution, choice);
  if (team.backend() == Backend::cpu) {
    check_memory(source, options.layer->plan, team);
  }

  const RunResult result = run_layer(source,
                                     {.executions = {parse_execution(options.execution)},
                                      .layer = options.layer->plan,
                                      .calls = options.calls},
                                     team);
  if (!team.leads()) return 0;
  const ExecutionResult& run = result.executions.front();
  if (options.explain) fmt::print("\nrank 0's plan\n{}\n", result.plans.front());
  fmt::print("\n{}\n{}", rank_table(run.reports), summary(run.reports));
  std::optional<Check> check;
  if (options.verify) {
    const Ticking ticking("reference check");
    check = Verifier(source).check(run.y);
  }
  if (check) print_check(*check);
  if (!options.output.empty()) write_output(options.output, run.y, config.hidden);
  if (!options.json.empty())
    write_json(options.json, to_json(source, run, check ? &*check : nullptr));
  return check && !check->passed() ? 1 : 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("run", "Run one layer over several ranks");
  auto options = std::make_shared<RunOptions>();
  options->layer = add_layer_options(command);
  command.add_option("--execution", options->execution, "fused, split or staged (default fused)")
      ->check(CLI::IsMember({"fused", "split", "staged"}));
  command.add_option("--calls", options->calls, "Calls to make; the fastest is shown (default 3)")
      ->check(CLI::Range(1, 1000000));
  command.add_flag("!--no-verify", options->verify, "Skip the comparison with the f64 reference");
  command.add_flag("--explain", options->explain, "Print the plan");
  command.add_option("--output", options->output,
                     "Write y as tensor `output` (f32) of a safetensors file");
  command.add_option("--json", options->json, "Write the figures as JSON");
  command.footer(
      "Examples:\n"
      "  megamoe run\n"
      "  megamoe run --checkpoint DIR --layer 0 --input x.safetensors --ranks 4 --output "
      "y.safetensors\n"
      "  megamoe run --tokens 4k --ranks 2 --json run.json\n"
      "  torchrun --nproc-per-node 4 --no-python megamoe run\n"
      "  megamoe run --preset mixtral-8x7b --tokens 4 --ranks 2 --execution split --explain");
  return [options] { return run(*options); };
}

}  // namespace megamoe::cli
