// The group's one fault: the first cause is kept, every rank is told, every wait leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megamoe/error.hpp"

namespace megamoe {

/// One per arena, in its first bytes. All-zero means no fault. The record of rank 0's arena holds
/// the first cause of the whole group; the abort words of all arenas only say that there is one.
struct alignas(64) FaultRegion {
  std::uint32_t abort;    // polled by this rank's waits: 0, or 1 from when the record is complete
  std::uint32_t claimed;  // compare-exchange 0 -> 1 elects the writer of the record
  std::uint32_t code;     // ErrorCode
  std::int32_t rank;      // who raised it
  std::uint32_t length;   // of message; written last, with release: not 0 says that all is written
  char message[492];      // UTF-8, cut to fit
};
static_assert(sizeof(FaultRegion) == 512);

/// The fault regions of all ranks, as one of them sees them. Any number of threads may use one
/// board.
class FaultBoard {
 public:
  /// regions[r]: the FaultRegion of rank r in this address space.
  FaultBoard(int rank, std::vector<FaultRegion*> regions);

  /// One acquire load of this rank's own abort word.
  bool raised() const;

  /// Keeps {code, message} if it is the group's first fault, then sets every rank's abort word.
  /// Never throws; callable by any thread of any rank, any number of times.
  void raise(ErrorCode code, std::string_view message);

  /// Throws Error: with the original code and message on the rank that raised it, else
  /// Error{aborted} whose message is "rank R gave up the group: MESSAGE". Call only after raised().
  [[noreturn]] void rethrow() const;

 private:
  int rank_;
  std::vector<FaultRegion*> regions_;
};

}  // namespace megamoe
