// Membership of one rank in a group, and the memory that all ranks of the group address.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megamoe/group.hpp"

#include "symmetric/file_descriptor.hpp"
#include "symmetric/host_memory.hpp"

namespace megamoe {

/// Memory of the same size at every rank, each part mapped into this process. Zero-filled when
/// made. Destruction unmaps this rank's view and waits for nobody; a part lives until its last view
/// is gone.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  virtual std::int64_t bytes() const = 0;
  /// Where the part of `rank` begins in this process' address space; aligned to a page.
  virtual std::byte* base(int rank) const = 0;
};

/// The most that one rank contributes to an all_gather: it is for what ranks agree on, not for
/// data.
inline constexpr std::int64_t kMaxPayloadBytes = std::int64_t{1} << 20;

/// One rank's handle on its group. Collective calls are made by all ranks, in the same order; each
/// rank uses its handle from one thread at a time (`lost` may be called from any thread).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// The one deadline of every wait; zero means that waits never expire.
  virtual std::chrono::nanoseconds deadline() const = 0;

  /// Collective: the payloads of all ranks in rank order. Sizes may differ.
  /// Throws Error{deadline} that names the ranks that did not come and `what` they were waited for;
  /// Error{peer_lost}; Error{mismatch} when ranks came to different calls. The first such failure
  /// is the group's: every rank throws it, and every later call throws it too.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> payload,
                                                         std::string_view what) = 0;

  /// Collective: an open file of each rank for every rank, in rank order; `file` stays the
  /// caller's. Throws what all_gather throws, and Error{unsupported} where ranks are no processes.
  virtual std::vector<FileDescriptor> exchange_files(int file, std::string_view what);

  /// Collective: `bytes` (equal on all ranks, else Error{mismatch}) of symmetric memory.
  /// Throws Error{out_of_memory} with bytes needed and available before any page is touched; when
  /// one rank cannot, every rank throws.
  virtual std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) = 0;

  /// A sentence if `rank` is known to have died or left ("rank 2 (process 4711) died"), else
  /// nothing. Cheap enough to ask every few milliseconds.
  virtual std::optional<std::string> lost(int rank) const = 0;

  /// What this rank's host can still give to its process.
  virtual HostMemory host_memory() const = 0;
};

/// Collective: asks whether the host can hold `bytes` of every rank's private memory beside what it
/// holds now. Throws what check_private_requests throws, on every rank, before a page is touched.
void check_private_memory(Communicator& communicator, std::int64_t bytes, std::string_view what,
                          std::string_view fix);

/// A group whose ranks are threads of this process: entry r is the handle for the thread that plays
/// rank r. A rank has left when the last copy of its handle is gone.
/// memory: what allocate() asks whether the host can hold the parts of all ranks.
std::vector<std::shared_ptr<Communicator>> make_thread_group(
    int ranks, const GroupOptions& options, MemorySource memory = available_host_memory);

/// A group whose ranks are processes of this host, one rank per process.
/// Collective. Throws Error{deadline} that names the ranks that did not join, Error{mismatch} when
/// ranks disagree on the group's size or version or two claim the same rank.
std::shared_ptr<Communicator> join_process_group(const ProcessGroupOptions& options,
                                                 MemorySource memory = available_host_memory);

}  // namespace megamoe
