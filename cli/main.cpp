#include <cstdio>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "megamoe/version.hpp"

#include "cli/commands.hpp"

int main(int argc, char** argv) {
  CLI::App app("One mixture-of-experts layer, expert-parallel over many ranks, as one operation.",
               "megamoe");
  app.require_subcommand(0, 1);
  app.footer("Start with `megamoe run`; `megamoe run --help` shows its options and examples.");
  app.set_version_flag("--version", megamoe::version());
  const std::vector<std::pair<const char*, megamoe::cli::Command>> commands{
      {"run", megamoe::cli::add_run(app)},
      {"verify", megamoe::cli::add_verify(app)},
      {"bench", megamoe::cli::add_bench(app)},
      {"plan", megamoe::cli::add_plan(app)},
      {"doctor", megamoe::cli::add_doctor(app)}};
  CLI11_PARSE(app, argc, argv);
  try {
    for (const auto& [name, command] : commands) {
      if (app.got_subcommand(name)) return command();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "megamoe: {}\n", error.what());
    return 2;
  }
  fmt::print(stderr, "{}", app.help());
  return 2;
}
