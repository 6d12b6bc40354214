// The barrier among the workers of one set at one rank: what a device-wide barrier is on a GPU.
#pragma once

#include <atomic>
#include <cstdint>

#include "symmetric/wait.hpp"

namespace megamoe {

class TeamBarrier {
 public:
  explicit TeamBarrier(std::int64_t workers) : workers_(workers) {}

  std::int64_t workers() const { return workers_; }

  /// Everything that any worker of the team wrote before is visible afterwards. Leaves with the
  /// group's fault; has no deadline of its own, since each of the others is either at work, or in
  /// a wait for another rank that has one and will name that rank.
  void arrive_and_wait(std::string_view role, const Waiter& waiter) {
    const std::uint64_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    waiter.until(
        {role, "workers of this rank"},
        [&] {
          const std::uint64_t now = round_.load(std::memory_order_acquire);
          return Observation{now != round, now, round + 1};
        },
        Waiter::guarded());
  }

 private:
  std::int64_t workers_;
  std::atomic<std::int64_t> arrived_{0};
  std::atomic<std::uint64_t> round_{0};
};

}  // namespace megamoe
