#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/names.hpp"
#include "cli/commands.hpp"
#include "cli/footprint.hpp"
#include "cli/layer_options.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/text.hpp"
#include "cpu/kernels.hpp"

namespace megamoe::cli {
namespace {

std::vector<InstructionSet> instruction_sets(const LayerOptions& plan) {
  if (plan.instruction_set) return {*plan.instruction_set};
  std::vector<InstructionSet> sets;
  for (InstructionSet set :
       {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::scalar}) {
    if (has_instruction_set(set)) sets.push_back(set);
  }
  return sets;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// A layer on one backend with one kind of kernels.
struct Run {
  Backend backend;
  std::string kernels;
  RunResult result;
};
using Runs = std::vector<Run>;

int report(const LayerSource& source, const Runs& runs) {
  const Verifier verifier = [&] {
    const Ticking ticking("reference check");
    return Verifier(source);
  }();
  bool all_right = true;
  Table table(
      {"backend", "kernels", "execution", "relative L2", "at most", "symmetric diff", "bits", ""});
  for (const auto& [backend, kernels, result] : runs) {
    for (const ExecutionResult& execution : result.executions) {
      const Check check = verifier.check(execution.y);
      const bool same = same_bits(execution.y, result.executions.front().y);
      const bool right = check.passed() && same;
      all_right = all_right && right;
      table.add({std::string(name_of(backend)), kernels, std::string(name_of(execution.execution)),
                 fmt::format("{:.2e}", check.relative_l2), fmt::format("{:.0e}", check.tolerance),
                 fmt::format("{:.1e}", check.symmetric_difference), same ? "as fused" : "DIFFER",
                 right ? "right" : "WRONG"});
    }
  }
  fmt::print("{}", table.str());
  return all_right ? 0 : 1;
}

void run_on_cpu(const LayerSource& source, const LayerOptionValues& values, RankTeam& team,
                Runs& runs) {
  check_memory(source, values.plan, team);
  for (InstructionSet set : instruction_sets(values.plan)) {
    LayerOptions plan = values.plan;
    plan.instruction_set = set;
    runs.push_back(
        {Backend::cpu, std::string(name_of(set)),
         run_layer(
             source,
             {.executions = {Execution::fused, Execution::split, Execution::staged}, .layer = plan},
             team)});
  }
}

int verify(LayerOptionValues& values) {
  RankTeam team = make_team(values, process_environment());
  const LayerSource source(values.layer);
  if (team.leads()) {
    fmt::print("{}: {}, {} tokens over {} ranks\n{}", source.description(),
               name_of(source.config().recipe), source.total_tokens(), source.ranks(),
               note_line(source));
    std::fflush(stdout);
  }
  // Ranks are forked before anything else runs, which may start threads or a device.
  Runs runs;
  if (values.backend != Backend::cuda) run_on_cpu(source, values, team, runs);
  if (values.backend != Backend::cpu) {
    TeamChoice choice = choose_team(team, source, values);
    if (choice.team.backend() == Backend::cuda) {
      runs.push_back(
          {Backend::cuda, "sm90",
           run_layer(source,
                     {.executions = {Execution::fused, Execution::split, Execution::staged},
                      .layer = values.plan},
                     choice.team)});
    } else if (team.leads()) {
      fmt::print("cuda is left out: {}\n", choice.reason);
    }
  }
  return team.leads() ? report(source, runs) : 0;
}

}  // namespace

Command add_verify(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("verify",
                                          "Run one layer through every backend, execution and "
                                          "instruction set against the f64 reference");
  auto values = add_layer_options(command);
  command.footer(
      "Exit code: 0 if every row is right, 1 if not, 2 for an error.\n"
      "Examples:\n"
      "  megamoe verify\n"
      "  megamoe verify --checkpoint DIR --layer 3 --input x.safetensors --activations fp8");
  return [values] { return verify(*values); };
}

}  // namespace megamoe::cli
