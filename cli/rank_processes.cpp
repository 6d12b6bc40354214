#include "cli/rank_processes.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.hpp"
#include "cli/children.hpp"

namespace megamoe::cli {
namespace {

using namespace std::chrono_literals;

/// The head of a rank's part of the shared memory; report or error text, then the payload, follow.
struct Mailbox {
  std::int32_t written;  ///< 1 once status, code and length are valid
  std::int32_t failed;
  std::int32_t code;
  std::uint32_t length;
};
// Pages come as they are written, so this is no cost: the reports of some 100,000 calls.
constexpr std::int64_t kReportBytes = std::int64_t{64} << 20;
constexpr std::int64_t kHeadBytes = 4096;
// Ranks that notice a failure by a wait that expires need this much more to say so and end.
constexpr std::chrono::seconds kGrace{5};

struct UnmapShared {
  std::size_t bytes;
  void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using SharedMemory = std::unique_ptr<std::byte, UnmapShared>;

SharedMemory map_shared(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(kHeadBytes + kReportBytes + bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, "{} bytes for a rank's results are not to be had: {}", size,
         std::strerror(errno));
  }
  return {static_cast<std::byte*>(memory), UnmapShared{size}};
}

Mailbox& mailbox(const SharedMemory& memory) {
  return *reinterpret_cast<Mailbox*>(memory.get());
}

void post(const SharedMemory& memory, const std::optional<ErrorCode>& error,
          const std::string& text) {
  if (!error && static_cast<std::int64_t>(text.size()) > kReportBytes) {
    return post(
        memory, ErrorCode::unsupported,
        fmt::format("a rank's report has {} bytes, and at most {} are read: make fewer calls",
                    text.size(), kReportBytes));
  }
  Mailbox& box = mailbox(memory);
  box.failed = error ? 1 : 0;
  box.code = error ? static_cast<std::int32_t>(*error) : 0;
  box.length = static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), kReportBytes));
  std::memcpy(memory.get() + kHeadBytes, text.data(), box.length);
  box.written = 1;
}

std::string text_of(const SharedMemory& memory) {
  return {reinterpret_cast<const char*>(memory.get() + kHeadBytes), mailbox(memory).length};
}

/// What a child does from its beginning to its end.
[[noreturn]] void be_rank(const SharedMemory& memory,
                          const std::function<std::string(std::byte*)>& work) {
  try {
    post(memory, std::nullopt, work(memory.get() + kHeadBytes + kReportBytes));
  } catch (const Error& error) {
    post(memory, error.code(), error.what());
  } catch (const std::exception& error) {
    post(memory, ErrorCode::internal, error.what());
  }
  std::fflush(nullptr);
  _exit(mailbox(memory).failed);
}

bool has_failed(const SharedMemory& memory, int status) {
  const Mailbox& box = mailbox(memory);
  return !WIFEXITED(status) || box.written == 0 || box.failed != 0;
}

/// What a rank that has ended failed with, if it did.
std::optional<Error> failure_of(std::size_t rank, const SharedMemory& memory, const ChildEnd& end) {
  if (!has_failed(memory, end.status)) return std::nullopt;
  if (!end.killed_because.empty()) {
    return Error(ErrorCode::peer_lost,
                 fmt::format("rank {} {}: it was killed", rank, end.killed_because));
  }
  if (WIFSIGNALED(end.status)) {
    return Error(ErrorCode::peer_lost,
                 fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(end.status),
                             strsignal(WTERMSIG(end.status))));
  }
  const Mailbox& box = mailbox(memory);
  if (box.written == 0) {
    return Error(ErrorCode::peer_lost,
                 fmt::format("rank {} ended with exit code {} and without a result", rank,
                             WEXITSTATUS(end.status)));
  }
  return Error(static_cast<ErrorCode>(box.code), text_of(memory));
}

/// Which of several failures is the cause: the least.
enum class Standing { died, own, follows };

Standing standing_of(const SharedMemory& memory, const ChildEnd& end) {
  const Mailbox& box = mailbox(memory);
  if (!WIFEXITED(end.status) || box.written == 0) return Standing::died;
  const auto code = static_cast<ErrorCode>(box.code);
  const bool follows = code == ErrorCode::aborted || code == ErrorCode::peer_lost;
  return follows ? Standing::follows : Standing::own;
}

/// Throws the first cause, if any rank failed, and names the ranks that had to be killed.
void report_failures(const std::vector<SharedMemory>& memories, const std::vector<ChildEnd>& ends) {
  std::optional<Error> cause;
  Standing standing{};
  std::string killed;
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    const std::optional<Error> error = failure_of(rank, memories[rank], ends[rank]);
    if (!error) continue;
    if (!ends[rank].killed_because.empty()) {
      killed += (killed.empty() ? "" : "; ") + std::string(error->what());
      continue;
    }
    const Standing its = standing_of(memories[rank], ends[rank]);
    if (cause && standing <= its) continue;
    cause = error;
    standing = its;
  }
  if (cause && killed.empty()) throw *cause;
  if (cause) fail(cause->code(), "{}; {}", cause->what(), killed);
  if (!killed.empty()) fail(ErrorCode::peer_lost, "{}", killed);
}

}  // namespace

std::vector<RankOutcome> run_ranks(
    std::int64_t ranks, const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(std::int64_t, std::span<std::byte>)>& work,
    const RankWatch& watch) {
  std::vector<SharedMemory> memories;
  for (std::int64_t bytes : payload_bytes) memories.push_back(map_shared(bytes));
  std::fflush(nullptr);  // else children print what the parent had buffered
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      const int why = errno;
      for (pid_t other : children) kill(other, SIGKILL);
      wait_for_children(children, {.failed = [](std::size_t, int) { return true; }});
      fail(ErrorCode::io, "rank {} could not be started: {}", rank, std::strerror(why));
    }
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the command
    if (getppid() != parent) _exit(1);
    be_rank(memories[static_cast<std::size_t>(rank)], [&](std::byte* payload) {
      const auto bytes = payload_bytes[static_cast<std::size_t>(rank)];
      return work(rank, {payload, static_cast<std::size_t>(bytes)});
    });
  }
  const auto failed = [&](std::size_t rank, int status) {
    return has_failed(memories[rank], status);
  };
  const bool for_ever = watch.deadline.count() == 0;
  report_failures(
      memories,
      wait_for_children(children, {failed, for_ever ? 0ns : watch.deadline + kGrace, watch.tick}));

  std::vector<RankOutcome> outcomes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const SharedMemory& memory = memories[static_cast<std::size_t>(rank)];
    const std::byte* payload = memory.get() + kHeadBytes + kReportBytes;
    outcomes.push_back(
        {text_of(memory), {payload, payload + payload_bytes[static_cast<std::size_t>(rank)]}});
  }
  return outcomes;
}

}  // namespace megamoe::cli
