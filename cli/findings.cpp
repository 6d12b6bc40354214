#include "cli/findings.hpp"

#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "megamoe/error.hpp"

#include "api/layer_plan.hpp"
#include "base/names.hpp"
#include "cli/layer_source.hpp"
#include "cli/rank_run.hpp"
#include "cli/report.hpp"
#include "cli/text.hpp"
#include "cpu/kernels.hpp"
#include "symmetric/channel.hpp"
#include "symmetric/membership.hpp"
#include "symmetric/shared_file.hpp"

namespace megamoe::cli {
namespace {

// What `megamoe run` takes without options, with room to spare.
constexpr std::int64_t kLeastMemory = std::int64_t{1} << 30;
// A rank has a socket and a shared file per peer and arena; shells give 1024.
constexpr rlim_t kLeastFiles = 256;

/// A finding that is fine unless `look` throws.
template <class Look>
Finding attempt(const char* what, const char* advice, const Look& look) {
  try {
    return {what, look(), Verdict::fine, ""};
  } catch (const std::exception& error) {
    return {what, error.what(), Verdict::missing, advice};
  }
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "no limit" : std::to_string(limit);
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fine:
      return "fine";
    case Verdict::limited:
      return "limited";
    case Verdict::missing:
      break;
  }
  return "missing";
}

Finding look_at_main_job() {
  return attempt("main job", "see the lines below", [] {
    LayerRequest request;
    request.ranks = 2;
    request.hidden = request.intermediate = 64;
    request.experts = 4;
    request.top_k = 2;
    request.tokens = 3;
    const LayerSource source(request);
    RankTeam team = RankTeam::forked(source.ranks(), std::chrono::seconds(10));
    const RunResult result = run_layer(source, {}, team);
    const Check check = Verifier(source).check(result.executions.front().y);
    if (!check.passed()) {
      throw Error(ErrorCode::internal,
                  fmt::format("a small layer is WRONG: relative L2 {:.1e}", check.relative_l2));
    }
    return fmt::format("a small layer on 2 rank processes: right, relative L2 {:.1e}",
                       check.relative_l2);
  });
}

Finding look_at_instructions() {
  std::vector<std::string_view> names;
  for (InstructionSet set :
       {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
    if (has_instruction_set(set)) names.push_back(megamoe::name_of(set));
  }
  Finding finding{"instruction sets", fmt::format("{}", fmt::join(names, ", ")), Verdict::fine, ""};
  if (best_instruction_set() == InstructionSet::scalar) {
    finding.verdict = Verdict::limited;
    finding.advice = "every result is right, but slow: use a processor with AVX2";
  }
  return finding;
}

Finding look_at_cores() {
  const std::int64_t all = std::thread::hardware_concurrency();
  const std::int64_t online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::int64_t cores = usable_cores();
  Finding finding{"cores",
                  fmt::format("{} of {} may be used by this process", cores, max64(all, online)),
                  Verdict::fine, ""};
  if (cores < online) {
    finding.verdict = Verdict::limited;
    finding.advice = "workers follow the affinity: widen it (taskset, --cpus-per-task) for more";
  }
  return finding;
}

Finding look_at_memory(const HostMemory& memory) {
  Finding finding{
      "memory",
      fmt::format("{} available: {}", human_bytes(memory.available_bytes), memory.limited_by),
      Verdict::fine, ""};
  if (memory.available_bytes < kLeastMemory) {
    finding.verdict = Verdict::limited;
    finding.advice = "enough for small layers alone; `megamoe plan` says what one takes";
  }
  return finding;
}

Finding look_at_shm(const std::filesystem::path& folder) {
  struct statvfs state {};
  const bool there = statvfs(folder.c_str(), &state) == 0;
  const auto bytes = static_cast<std::int64_t>(state.f_frsize * state.f_blocks);
  return {folder.string(),
          there ? fmt::format("{}; not needed: arenas are memfds", human_bytes(bytes))
                : "absent; not needed: arenas are memfds",
          Verdict::fine, ""};
}

Finding look_at_memfd() {
  return attempt("memfd",
                 "a kernel of 3.17 or later that allows memfd_create is needed: look at "
                 "seccomp rules of the container",
                 [] {
                   make_shared_file("megamoe-doctor", 4096);
                   return std::string("made, sized and sealed");
                 });
}

Finding look_at_sockets() {
  return attempt("abstract sockets", "ranks meet there: allow AF_UNIX sockets (SOCK_SEQPACKET)",
                 [] {
                   const std::string name = fmt::format("megamoe-doctor-{}", getpid());
                   const FileDescriptor listener = listen_at(name);
                   if (!connect_to(name) || !accept_from(listener)) {
                     throw Error(ErrorCode::io, "a connection to this process itself is refused");
                   }
                   return std::string("bound, connected and accepted");
                 });
}

Finding look_at_locks() {
  return attempt("locks on memfd",
                 "dead ranks are noticed by them: a kernel with POSIX record "
                 "locks on memory files is needed",
                 [] {
                   FileDescriptor file = Membership::make_file(1);
                   const int descriptor = file.get();
                   const Membership membership(std::move(file), 1, 0);
                   const pid_t child = fork();
                   if (child == 0) {
                     struct flock lock {};
                     lock.l_type = F_WRLCK;
                     lock.l_whence = SEEK_SET;
                     lock.l_len = 1;
                     const bool seen =
                         fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
                     _exit(seen ? 0 : 1);
                   }
                   int status = 1;
                   if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                     throw Error(ErrorCode::io, "a child does not see its parent's lock");
                   }
                   return std::string("taken, and seen by another process");
                 });
}

Finding look_at_huge_pages(const std::filesystem::path& sys) {
  const std::string modes = first_line(sys / "kernel/mm/transparent_hugepage/enabled");
  const auto open = modes.find('[');
  const auto close = modes.find(']');
  const bool told = open != std::string::npos && close != std::string::npos && close > open;
  const std::string mode = told ? modes.substr(open + 1, close - open - 1) : "not told";
  Finding finding{"huge pages", "transparent: " + mode, Verdict::fine, ""};
  if (mode != "always" && mode != "madvise") {
    finding.verdict = Verdict::limited;
    finding.advice =
        "weights stream faster with them: echo madvise into "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

Finding look_at_numa(const HostTopology& host, bool places_memory) {
  Finding finding{"NUMA nodes", host.describe(), Verdict::fine, ""};
  if (host.nodes().size() > 1 && !places_memory) {
    finding.verdict = Verdict::limited;
    finding.advice =
        "the system refuses mbind, so memory lies where it is touched first: allow it in the "
        "container (--cap-add SYS_NICE)";
  }
  return finding;
}

Finding look_at_open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  Finding finding{"open files", limit_text(limit.rlim_cur), Verdict::fine, ""};
  if (limit.rlim_cur < kLeastFiles) {
    finding.verdict = Verdict::limited;
    finding.advice = "few ranks fit: ulimit -n 1024";
  }
  return finding;
}

Finding look_at_locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return {"locked memory",
          limit.rlim_cur == RLIM_INFINITY
              ? "no limit"
              : human_bytes(static_cast<std::int64_t>(limit.rlim_cur)) + "; nothing is locked",
          Verdict::fine, ""};
}

}  // namespace megamoe::cli
