#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.hpp"
#include "cli/findings.hpp"
#include "cli/progress.hpp"
#include "topology/binding.hpp"

namespace megamoe::cli {
namespace {

const char* colour_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::fine:
      return "\033[32m";
    case Verdict::limited:
      return "\033[33m";
    case Verdict::missing:
      break;
  }
  return "\033[31m";
}

void print(const Finding& finding, Colour colour) {
  const bool coloured = colour == Colour::ansi;
  fmt::print("{:<17} {}{:<7}{}  {}\n", finding.what, coloured ? colour_code(finding.verdict) : "",
             name_of(finding.verdict), coloured ? "\033[0m" : "", finding.found);
  if (!finding.advice.empty()) fmt::print("{:<17} {:<7}  -> {}\n", "", "", finding.advice);
}

int examine() {
  // The main job and the locks fork, so they come before anything that starts a thread.
  std::vector<Finding> findings{look_at_main_job(),
                                look_at_locks(),
                                look_at_memfd(),
                                look_at_sockets(),
                                look_at_instructions(),
                                look_at_cores(),
                                look_at_memory(available_host_memory()),
                                look_at_shm("/dev/shm"),
                                look_at_huge_pages("/sys"),
                                look_at_numa(host_topology(), can_place_memory()),
                                look_at_open_files(),
                                look_at_locked_memory()};
  for (Finding& finding : look_at_cuda()) findings.push_back(std::move(finding));
  bool missing = false;
  for (const Finding& finding : findings) {
    print(finding, colour_of(STDOUT_FILENO));
    missing = missing || finding.verdict == Verdict::missing;
  }
  fmt::print("\n{}\n",
             missing ? "The main job cannot run: see what is missing." : "The main job can run.");
  return missing ? 1 : 0;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("doctor", "What this machine has, and what it lacks");
  command.footer(
      "Exit code: 0 if `megamoe run` can run here, 1 if something for it is missing.\n"
      "Examples:\n"
      "  megamoe doctor\n"
      "  NO_COLOR=1 megamoe doctor > doctor.txt");
  return [] { return examine(); };
}

}  // namespace megamoe::cli
