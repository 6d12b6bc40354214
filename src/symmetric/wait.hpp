// The one way to wait: by name, with a deadline, watching for faults and for ranks that died.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "symmetric/communicator.hpp"
#include "symmetric/fault.hpp"

namespace megamoe {

/// What one look at a signal showed.
struct Observation {
  bool done;
  std::uint64_t seen;
  std::uint64_t wanted;
};

/// Whose work a wait depends on. A rank may leave as soon as its own part of a call is done, so
/// only a wait for a signal that peers write may take a peer's absence as a fault.
enum class WaitsFor { this_rank, peers };

/// What is waited for, for the message of the error.
struct WaitName {
  std::string_view role;    ///< who waits: "barrier A", "GEMM 1", ...
  std::string_view signal;  ///< the region or word: "block arrival", ...
  std::int64_t index = 0;   ///< which of them
  WaitsFor on = WaitsFor::this_rank;
  /// Says signal, wanted and seen in words; null: "SIGNAL [INDEX]: wanted N, seen N".
  std::string (*describe)(const WaitName&, const Observation&) = nullptr;
  /// For a wait for peers: whether this one's part is still missing, so that its absence is a
  /// fault; null: any peer's is. `context` is the waiter's own.
  bool (*awaits)(const WaitName&, int peer) = nullptr;
  const void* context = nullptr;
};

/// Waits of one rank. Thread-safe; made once per arena.
///
/// A wait spins for some microseconds, then yields, then sleeps in short steps; every step polls
/// the abort word, and a wait for peers asks every few milliseconds whether one is lost. A wait
/// that expires, or sees a lost peer, raises the fault for the whole group and throws it.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;

  Waiter(const Communicator& communicator, FaultBoard& faults);

  /// Returns when look() says done. look: () -> Observation, does its own acquire loads.
  /// `count_from`: the deadline starts at the later of the first failed look and this point.
  /// Throws Error{deadline} naming rank, role, signal, index, seen and wanted; Error{peer_lost}; or
  /// the group's fault.
  template <class Look>
  void until(const WaitName& name, Look&& look, Clock::time_point count_from = {}) const {
    Observation now = look();
    if (now.done) return;
    Patience patience(*this, count_from);
    while (!now.done) {
      patience.step(name, now);
      now = look();
    }
  }

  /// A point to count from that never comes: for a wait on this rank's own workers, each of which
  /// is at work or in a wait that has a deadline and names what it lacks.
  static Clock::time_point guarded() { return Clock::now() + std::chrono::hours(24 * 365); }

  /// Throws the group's fault if there is one.
  void check() const;

 private:
  /// The slow half of a wait: backs off, and throws when it must.
  class Patience {
   public:
    Patience(const Waiter& waiter, Clock::time_point count_from);
    /// After a failed look.
    void step(const WaitName& name, const Observation& now);

   private:
    void watch_peers(const WaitName& name, Clock::time_point time);
    void back_off(Clock::time_point time) const;
    [[noreturn]] void give_up(ErrorCode code, std::string_view message) const;

    const Waiter& waiter_;
    Clock::time_point first_look_;
    Clock::time_point count_from_;
    Clock::time_point next_liveness_;
    std::optional<std::string> lost_;  // seen lost before the last look
    std::int64_t steps_ = 0;
  };

  const Communicator& communicator_;
  FaultBoard& faults_;
};

}  // namespace megamoe
