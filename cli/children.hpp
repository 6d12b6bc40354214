// Waiting for the child processes of the command, of which one may be stopped or stuck.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace megamoe::cli {

/// How a child ended.
struct ChildEnd {
  int status = 0;              ///< as waitpid() gives it
  std::string killed_because;  ///< "was stopped by signal 19 (...) ..."; empty: it ended by itself
};

struct ChildrenWatch {
  /// Whether a child that has ended failed; the others then have `patience` to end too.
  std::function<bool(std::size_t child, int status)> failed;
  /// How long a child may be stopped, or go on after another failed, before it is killed; zero: as
  /// long as it likes.
  std::chrono::nanoseconds patience{};
  /// Called several times a second until all have ended; may be empty.
  std::function<void()> tick;
};

/// Waits for all children, in whatever order they end.
std::vector<ChildEnd> wait_for_children(const std::vector<pid_t>& children,
                                        const ChildrenWatch& watch);

}  // namespace megamoe::cli
