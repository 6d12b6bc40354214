// A group's arena as one rank sees it: typed access to the regions of every rank, the barriers, and
// the state of calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "layout/arena.hpp"
#include "symmetric/barrier.hpp"
#include "symmetric/communicator.hpp"
#include "symmetric/fault.hpp"
#include "symmetric/wait.hpp"

namespace megamoe {

class Arena {
 public:
  /// Collective: allocates. Throws what Communicator::allocate throws.
  /// `first`: the group's first arena, whose fault, barriers and call numbers serve all arenas of
  /// the group, so that calls on different arenas are still calls of one group; null for the first.
  Arena(std::shared_ptr<Communicator> communicator, const LayerShape& shape,
        std::shared_ptr<Arena> first = nullptr);

  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->ranks(); }
  const LayerShape& shape() const { return shape_; }
  const ArenaLayout& layout() const { return layout_; }

  /// Where a region begins at a rank, in this process' address space. bank: 0, or call % 2 where
  /// the region has two.
  template <class T>
  T* at(RegionId id, int rank, std::int64_t bank = 0) const {
    const Region& region = layout_[id];
    return reinterpret_cast<T*>(memory_->base(rank) + region.offset_bytes +
                                bank * region.bank_bytes);
  }
  /// The same at this rank.
  template <class T>
  T* mine(RegionId id, std::int64_t bank = 0) const {
    return at<T>(id, rank(), bank);
  }

  /// All of this rank's part.
  std::span<std::byte> part() const {
    return {memory_->base(rank()), static_cast<std::size_t>(memory_->bytes())};
  }

  const Waiter& waiter() const { return *control().waiter_; }
  FaultBoard& faults() { return *control().faults_; }
  const GroupBarrier& barrier(BarrierId id) const {
    return control().barriers_[static_cast<std::size_t>(id)];
  }

  /// The exclusive right of this rank to run one call of its group, from its beginning to its end.
  class Call {
   public:
    /// Throws the group's fault, and Error{invalid_argument} when another call of this arena is
    /// running.
    explicit Call(Arena& arena);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    /// Of the group's calls, from 1.
    std::uint32_t number() const { return number_; }
    /// The bank that this call uses; it clears the other.
    std::int64_t bank() const { return bank_; }

   private:
    Arena& control_;
    std::uint32_t number_;
    std::int64_t bank_;
  };

 private:
  const Arena& control() const { return first_ ? *first_ : *this; }
  Arena& control() { return first_ ? *first_ : *this; }

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Arena> first_;
  LayerShape shape_;
  ArenaLayout layout_;
  std::unique_ptr<SymmetricMemory> memory_;
  std::unique_ptr<FaultBoard> faults_;
  std::unique_ptr<Waiter> waiter_;
  std::vector<GroupBarrier> barriers_;
  std::atomic<bool> in_call_{false};
};

}  // namespace megamoe
