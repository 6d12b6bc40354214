// What the layers of one rank share: membership, worker threads, arenas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/arena_shelf.hpp"
#include "api/gpu_rank.hpp"
#include "cpu/worker_pool.hpp"
#include "symmetric/arena.hpp"
#include "symmetric/communicator.hpp"
#include "topology/topology.hpp"

namespace megamoe {

class GroupState {
 public:
  /// member: of a group of CUDA devices, else null.
  explicit GroupState(std::shared_ptr<Communicator> communicator,
                      std::shared_ptr<GpuMember> member = nullptr)
      : communicator_(std::move(communicator)) {
    if (member) gpu_ = std::make_unique<GpuRank>(communicator_, std::move(member));
  }

  Communicator& communicator() const { return *communicator_; }

  /// Null in a group of CPUs.
  GpuRank* gpu() const { return gpu_.get(); }

  /// Threads for this rank's calls, at least `threads`, on the processors of the calling thread:
  /// `bound_to` (empty: its own mask). Another pool replaces one that is smaller or elsewhere;
  /// layers keep what they have.
  std::shared_ptr<WorkerPool> pool(std::int64_t threads, const CpuSet& bound_to);

  /// Collective: the arena for a shape; the one of an earlier layer of the same shape if it still
  /// lives at every rank.
  std::shared_ptr<Arena> arena(const LayerShape& shape);

  /// 1 for the group's first layer.
  std::uint32_t next_layer() { return ++layers_; }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<WorkerPool> pool_;
  CpuSet pool_cpus_;
  std::shared_ptr<Arena> first_;  // carries the group's fault, barriers and call numbers
  ArenaShelf<Arena> arenas_;
  std::unique_ptr<GpuRank> gpu_;
  std::uint32_t layers_ = 0;
};

/// Collective: every rank brings an outcome of some local step, empty for success. Returns when all
/// succeeded; else throws Error{aborted} that names the first rank that failed and why (to be
/// replaced by the own error where there is one).
void agree_on_success(Communicator& communicator, const std::string& own_failure,
                      std::string_view what);

}  // namespace megamoe
