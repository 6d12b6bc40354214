#include "cli/children.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/units.hpp"

namespace megamoe::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What looking from time to time may add to the time of a run.
constexpr std::chrono::milliseconds kLookEvery{10};
constexpr std::chrono::milliseconds kTickEvery{50};

struct Child {
  pid_t process;
  bool ended = false;
  ChildEnd end;
  std::optional<Clock::time_point> stopped_since;
  int stopped_by = 0;
};

class Children {
 public:
  Children(const std::vector<pid_t>& processes, const ChildrenWatch& watch) : watch_(watch) {
    for (pid_t process : processes) children_.push_back({.process = process});
  }

  bool all_ended() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.ended; });
  }

  void look() {
    for (std::size_t n = 0; n < children_.size(); ++n) {
      if (!children_[n].ended) look_at(n);
    }
  }

  void kill_overdue() {
    if (watch_.patience.count() == 0) return;
    for (Child& child : children_) {
      if (child.ended || !child.end.killed_because.empty()) continue;
      if (is_past(child.stopped_since)) {
        end_by_force(child, fmt::format("was stopped by signal {} ({}) and did not go on",
                                        child.stopped_by, strsignal(child.stopped_by)));
      } else if (is_past(failed_since_)) {
        end_by_force(child, "did not end after that");
      }
    }
  }

  std::vector<ChildEnd> ends() const {
    std::vector<ChildEnd> ends;
    for (const Child& child : children_) ends.push_back(child.end);
    return ends;
  }

 private:
  void look_at(std::size_t n) {
    Child& child = children_[n];
    int status = 0;
    const pid_t changed = waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (changed == 0 || (changed < 0 && errno == EINTR)) return;
    if (changed > 0 && WIFSTOPPED(status)) {
      child.stopped_since = Clock::now();
      child.stopped_by = WSTOPSIG(status);
      return;
    }
    if (changed > 0 && WIFCONTINUED(status)) {
      child.stopped_since.reset();
      return;
    }
    child.ended = true;
    child.end.status = status;
    if (!failed_since_ && watch_.failed(n, status)) failed_since_ = Clock::now();
  }

  bool is_past(const std::optional<Clock::time_point>& begin) const {
    return begin && Clock::now() - *begin >= watch_.patience;
  }

  void end_by_force(Child& child, const std::string& why) const {
    child.end.killed_because = fmt::format("{} within {}", why, as_text(watch_.patience));
    kill(child.process, SIGKILL);
  }

  const ChildrenWatch& watch_;
  std::vector<Child> children_;
  std::optional<Clock::time_point> failed_since_;
};

}  // namespace

std::vector<ChildEnd> wait_for_children(const std::vector<pid_t>& processes,
                                        const ChildrenWatch& watch) {
  Children children(processes, watch);
  Clock::time_point next_tick{};
  for (;;) {
    children.look();
    if (children.all_ended()) return children.ends();
    children.kill_overdue();
    if (watch.tick && Clock::now() >= next_tick) {
      watch.tick();
      next_tick = Clock::now() + kTickEvery;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace megamoe::cli
