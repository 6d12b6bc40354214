// Ranks as forked processes. A child never returns into the test: it reports over a pipe and exits.
#pragma once

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symmetric/file_descriptor.hpp"
#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {

/// How a child ended.
struct Outcome {
  std::optional<Error> error;  ///< what its body threw
  std::string text;            ///< what its body returned
  int signal = 0;              ///< what killed it
};

/// A child process that runs `body`: what it returns or throws becomes the outcome.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    report_ = FileDescriptor(ends[0]);
    FileDescriptor out(ends[1]);
    process_ = fork();
    if (process_ != 0) return;
    report_ = FileDescriptor();
    std::string text;
    if (const auto error = error_of([&] { text = body(); })) {
      text = fmt::format("E{}{}", static_cast<char>(error->code()), error->what());
    } else {
      text.insert(0, 1, 'T');
    }
    const bool written =
        write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  Child(Child&& other) noexcept
      : process_(std::exchange(other.process_, -1)), report_(std::move(other.report_)) {}
  ~Child() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  pid_t process() const { return process_; }

  Outcome reap() {
    std::string report;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(report_.get(), buffer, sizeof(buffer))) > 0) {
      report.append(buffer, static_cast<std::size_t>(got));
    }
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    Outcome outcome;
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    if (report.size() >= 2 && report[0] == 'E') {
      outcome.error = Error(static_cast<ErrorCode>(report[1]), report.substr(2));
    } else if (!report.empty()) {
      outcome.text = report.substr(1);
    }
    return outcome;
  }

 private:
  pid_t process_ = -1;
  FileDescriptor report_;
};

/// A rendezvous that no other test uses.
inline std::string fresh_rendezvous() {
  static int count = 0;
  return fmt::format("test-{}-{}", getpid(), ++count);
}

inline ProcessGroupOptions member(int rank, int ranks, const std::string& rendezvous,
                                  std::chrono::nanoseconds deadline = 20s) {
  return {rank, ranks, rendezvous, {deadline}};
}

using ProcessBody = std::function<std::string(Communicator&)>;

/// Runs `body` in a process group and reaps everyone. Entry r: how rank r ended.
inline std::vector<Outcome> run_processes(int ranks, std::chrono::nanoseconds deadline,
                                          const ProcessBody& body,
                                          MemorySource memory = available_host_memory) {
  const std::string rendezvous = fresh_rendezvous();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.emplace_back([&] {
      return body(*join_process_group(member(rank, ranks, rendezvous, deadline), memory));
    });
  }
  std::vector<Outcome> outcomes;
  for (Child& child : children) outcomes.push_back(child.reap());
  return outcomes;
}

/// All ranks returned `text`.
inline ::testing::AssertionResult all_returned(const std::vector<Outcome>& outcomes,
                                               const std::string& text) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    if (!outcome.error && outcome.signal == 0 && outcome.text == text) continue;
    return ::testing::AssertionFailure()
           << "rank " << rank << ": signal " << outcome.signal << ", text '" << outcome.text
           << "', error: " << (outcome.error ? outcome.error->what() : "none");
  }
  return ::testing::AssertionSuccess();
}

[[noreturn]] inline void die() {
  kill(getpid(), SIGKILL);
  std::abort();
}

/// What the groups of this test process have in the host's shared name spaces. Other tests may run
/// at the same time, so only names that are ours count.
inline std::set<std::string> traces() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string path = entry.path().string();
    if (path.find("megamoe") != std::string::npos) found.insert(path);
  }
  const std::string mine = fmt::format("/test-{}-", getpid());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const auto at = line.find("@megamoe/");
    if (at != std::string::npos && line.find(mine) != std::string::npos) {
      found.insert(line.substr(at));
    }
  }
  return found;
}

inline std::size_t count_entries(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

/// Mappings of files whose name contains `name`.
inline std::size_t count_mappings_of(const std::string& name) {
  std::ifstream stream("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(stream, line);) {
    const auto path = line.find("/memfd:");
    count += path != std::string::npos && line.find(name, path) != std::string::npos;
  }
  return count;
}

/// The size of this process' address space.
inline std::int64_t mapped_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace megamoe::testing_symmetric
