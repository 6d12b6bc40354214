// The barrier among all ranks of a group: one word per peer, epochs, nothing to reset.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "symmetric/wait.hpp"

namespace megamoe {

/// What a rank says when it arrives: which layer it runs and which call of the group this is.
struct Arrival {
  std::uint32_t layer = 0;  ///< the layer's ordinal in the group, 1 or more
  std::uint32_t call = 0;   ///< 1 for the group's first call; wraps around after 2^32 - 1
};

/// words[r][s] is written by rank s (release, system scope) in the arena of rank r and read by rank
/// r (acquire): layer << 32 | call. Since a rank can pass barrier n only when all have arrived, a
/// word is never more than one arrival ahead of its reader, and a word that names this call with
/// another layer is a mismatch. Zero, the state at creation, is "call 0": nobody has arrived.
class GroupBarrier {
 public:
  /// name: a literal. words[r]: the R signal words of rank r for this barrier, in this address
  /// space.
  GroupBarrier(std::string_view name, int rank, std::vector<std::uint64_t*> words);

  /// Arrives at all ranks, then waits for all. Everything written before by any rank is visible
  /// afterwards. Throws what Waiter::until throws, and Error{mismatch} (raised for the whole group)
  /// that names both layers.
  void arrive_and_wait(const Arrival& arrival, const Waiter& waiter, FaultBoard& faults) const;

  /// Whether all ranks, this one included, have arrived for this call. For workers of this rank
  /// that do not pass the barrier themselves.
  bool all_arrived(std::uint32_t call) const;

 private:
  void wait_for(int peer, const Arrival& arrival, const Waiter& waiter, FaultBoard& faults) const;

  std::string_view name_;
  int rank_;
  std::vector<std::uint64_t*> words_;
};

}  // namespace megamoe
