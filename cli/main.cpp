#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "megamoe/error.hpp"
#include "megamoe/version.hpp"

#include "cli/commands.hpp"

namespace {

/// A descriptor of the three that is closed would go to the next file that is opened, and what is
/// meant for the user into that file. Returns whether output has a place.
bool settle_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);
  }
  return fcntl(STDOUT_FILENO, F_GETFD) >= 0;
}

int run(int argc, char** argv) {
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
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(name)) return command();
  }
  fmt::print(stderr, "{}", app.help());
  return 2;
}

/// Ranks that share a device and streams that share one of its few queues could wait for each other
/// for ever: four split ranks need more queues than a process has by default.
void ask_for_queues() {
  constexpr int kKeepTheUsers = 0;
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeepTheUsers);
}

int refuse(const char* what) {
  fmt::print(stderr, "megamoe: {}\n", what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (!settle_standard_streams()) {
    return refuse("standard output is closed: give it a file, a pipe or /dev/null");
  }
  ask_for_queues();
  int code = 0;
  try {
    code = run(argc, argv);
  } catch (const std::exception& error) {
    code = refuse(error.what());
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    // Of an earlier failure only the fact is known.
    const std::string why = errno != 0 ? std::strerror(errno) : "is there space left for it?";
    return refuse(("standard output could not be written: " + why).c_str());
  }
  return code;
}
