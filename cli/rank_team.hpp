// The ranks of a command: processes that it forks, processes that a launcher started, of which this
// is one, or threads on CUDA devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megamoe/group.hpp"

#include "cli/launcher.hpp"
#include "cli/progress.hpp"
#include "cli/rank_processes.hpp"
#include "plan/plan.hpp"

namespace megamoe::cli {

/// What the work of one rank is given.
struct RankWork {
  const Group& group;
  std::span<std::byte> payload;  ///< for the leader: memory that it reads afterwards
  WorkProgress& progress;        ///< for who watches
};

class RankTeam {
 public:
  /// Each run() forks `ranks` processes, which meet by themselves.
  static RankTeam forked(std::int64_t ranks, std::chrono::nanoseconds deadline);

  /// This process is one of the ranks; they meet when they first need to.
  static RankTeam launched(const LaunchedRank& rank, std::chrono::nanoseconds deadline);

  /// The same ranks on CUDA devices: launched processes stay what they are, forked ones become
  /// threads of this process. Rank r is on device r modulo their number, so that ranks share a
  /// device when there are more of them. Before the first run().
  RankTeam on_devices() const;
  Backend backend() const { return backend_; }

  std::int64_t ranks() const { return ranks_; }
  /// Whether this process prints and writes: the parent of forked ranks, or rank 0 of launched
  /// ones.
  bool leads() const { return !launched_ || launched_->rank == 0; }
  /// Cores that a rank's workers have: an equal part of this process' own for forked ranks; for
  /// launched ones, whom the launcher may have bound to cores, what they find out together.
  /// Collective for those.
  std::int64_t cores_per_rank();
  /// Throws Error{mismatch} at every rank when launched ones mean different layers: each has its
  /// own command line. Collective for those.
  void agree_on(const Plan& plan);
  /// "4 rank processes", "rank 0 of 4, started by torchrun".
  std::string description() const;

  /// Runs the work at every rank of the team; the outcomes of all ranks in rank order at the
  /// leader, nothing at others. Collective for launched ranks. payload_bytes: by rank, the same at
  /// all. Throws the first cause of a failure, as run_ranks does; a launched rank its own error
  /// before another's.
  std::vector<RankOutcome> run(const std::vector<std::int64_t>& payload_bytes,
                               const std::function<std::string(const RankWork&)>& work);

 private:
  RankTeam(std::int64_t ranks, std::chrono::nanoseconds deadline)
      : ranks_(ranks), deadline_(deadline) {}
  std::vector<RankOutcome> run_forked(const std::vector<std::int64_t>& payload_bytes,
                                      const std::function<std::string(const RankWork&)>& work);
  std::vector<RankOutcome> run_launched(const std::vector<std::int64_t>& payload_bytes,
                                        const std::function<std::string(const RankWork&)>& work);

  std::vector<RankOutcome> run_threads(const std::vector<std::int64_t>& payload_bytes,
                                       const std::function<std::string(const RankWork&)>& work);
  int device_of(std::int64_t rank) const;
  const Group& meet();

  std::int64_t ranks_;
  std::chrono::nanoseconds deadline_;
  Backend backend_ = Backend::cpu;
  std::optional<LaunchedRank> launched_;
  std::optional<Group> group_;  ///< of a launched rank, from the first meeting on
};

}  // namespace megamoe::cli
