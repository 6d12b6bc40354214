// What the layers of one rank share: membership, worker threads, arenas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/worker_pool.hpp"
#include "symmetric/arena.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

class GroupState {
 public:
  explicit GroupState(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Communicator& communicator() const { return *communicator_; }

  /// Threads for this rank's calls, at least `threads`. A larger pool replaces a smaller one;
  /// layers keep what they have.
  std::shared_ptr<WorkerPool> pool(std::int64_t threads);

  /// Collective: the arena for a shape; the one of an earlier layer of the same shape if it still
  /// lives at every rank.
  std::shared_ptr<Arena> arena(const LayerShape& shape);

  /// 1 for the group's first layer.
  std::uint32_t next_layer() { return ++layers_; }

 private:
  struct KnownArena {
    std::uint64_t number;  ///< of the group's arenas, from 1: the same at all ranks
    std::weak_ptr<Arena> arena;
  };

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<WorkerPool> pool_;
  std::shared_ptr<Arena> first_;  // carries the group's fault, barriers and call numbers
  std::vector<KnownArena> arenas_;
  std::uint64_t arenas_made_ = 0;
  std::uint32_t layers_ = 0;
};

/// Collective: every rank brings an outcome of some local step, empty for success. Returns when all
/// succeeded; else throws Error{aborted} that names the first rank that failed and why (to be
/// replaced by the own error where there is one).
void agree_on_success(Communicator& communicator, const std::string& own_failure,
                      std::string_view what);

}  // namespace megamoe
