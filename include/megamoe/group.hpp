// A group: the ranks that run a layer together.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megamoe/types.hpp"

namespace megamoe {

struct GroupOptions {
  /// How long any wait for another rank may take before it is an error; zero: for ever.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

/// Where the processes of a group meet.
struct ProcessGroupOptions {
  int rank = 0;
  int ranks = 1;
  /// Any text without '/', the same on all ranks and used by no other group at the same time. It
  /// becomes a name in the abstract socket namespace of the host, so no file is ever made.
  std::string rendezvous;
  GroupOptions group;
  /// The CUDA device of this rank; absent: the CPU. All ranks have one, or none. Ranks that share a
  /// device take turns on it, some milliseconds each: right, but slow.
  std::optional<int> device;
};

/// Memory that the caller made symmetric already, as PyTorch's symmetric memory or NVSHMEM gives.
struct PeerGroupOptions {
  int device = 0;  ///< of this rank
  int rank = 0;
  /// Where the part of every rank begins in this process' address space; the own part is memory of
  /// `device`. Aligned to 1024 bytes, zero-filled by its owner before any rank makes its Group (a
  /// barrier of the caller's lies between), and there until the last rank's group is gone.
  std::vector<void*> parts;
  std::int64_t bytes = 0;  ///< of each part, see Group::peer_bytes
  GroupOptions group;
};

class GroupState;

/// One rank's handle on its group. Copies share the membership; the rank leaves when the last copy
/// and the last Layer made with it are gone. Leaving waits for nobody.
///
/// Layers are made and called in the same order on every rank, each rank from one thread at a time.
class Group {
 public:
  /// A group of one rank.
  static Group single(const GroupOptions& options = {});

  /// Ranks that are threads of this process: use entry r from the thread that plays rank r.
  static std::vector<Group> threads(int ranks, const GroupOptions& options = {});

  /// A group of one rank on a CUDA device. Throws Error{unsupported} where there is none that the
  /// kernels run on.
  static Group device(int device = 0, const GroupOptions& options = {});

  /// Ranks of this process on CUDA devices: rank r runs on devices[r]. The same device may be named
  /// several times: its ranks share its multiprocessors in equal parts. Otherwise as threads(): a
  /// rank's layers are made and called from one thread at a time, and making one is collective; one
  /// thread may enqueue the calls of all ranks (see Layer). Throws Error{unsupported} for a device
  /// that the kernels do not run on, or two that cannot address each other's memory.
  static std::vector<Group> devices(const std::vector<int>& devices,
                                    const GroupOptions& options = {});

  /// Joins a group of processes of this host. Returns when all ranks have come.
  /// Throws Error{deadline} that names the ranks that did not, Error{unsupported} for a device as
  /// devices() does.
  static Group processes(const ProcessGroupOptions& options);

  /// A rank of a group of CUDA devices that meets in the caller's symmetric memory. Returns when
  /// all ranks have come.
  static Group peers(const PeerGroupOptions& options);
  /// Bytes of each rank's part for layers of one shape. Layers of equal shape share them; several
  /// shapes take the sum.
  static std::int64_t peer_bytes(const LayerConfig& config, int ranks);

  int rank() const;
  int ranks() const;
  /// cpu or cuda.
  Backend backend() const;

  /// For the library: what a Layer needs of its group.
  GroupState& state() const { return *state_; }

 private:
  explicit Group(std::shared_ptr<GroupState> state);
  std::shared_ptr<GroupState> state_;
};

}  // namespace megamoe
