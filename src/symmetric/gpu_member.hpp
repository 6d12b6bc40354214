// What a rank of a group of CUDA devices has besides its Communicator: a device, and memory that
// the devices of all ranks address. No header of CUDA; a build without it refuses by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "symmetric/communicator.hpp"

namespace megamoe {

class GpuMember {
 public:
  virtual ~GpuMember() = default;
  virtual int device() const = 0;
  /// Ranks whose kernels run on this device at the same time, this one included: they share its
  /// multiprocessors.
  virtual int sharers() const = 0;
  /// How ranks reach each other's memory, in words.
  virtual std::string_view way() const = 0;

  /// Whether memory goes back to the device with its SymmetricMemory; else allocate() cuts the
  /// group's own memory up, once.
  virtual bool takes_back() const { return true; }

  /// Collective: `bytes` (equal on all ranks) of each rank's device, zero-filled, every part mapped
  /// for this rank's device and aligned to 1024 bytes. When one rank cannot, every rank throws.
  virtual std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) = 0;
};

/// Ranks of one process: entry r is for communicators[r] on devices[r]. Throws Error{unsupported}
/// for a device that the kernels do not run on, or two that cannot address each other.
std::vector<std::shared_ptr<GpuMember>> make_gpu_thread_members(
    const std::vector<std::shared_ptr<Communicator>>& communicators,
    const std::vector<int>& devices);

enum class GpuSharing {
  best,  ///< descriptors of the driver's virtual memory where every rank's driver has them, else
         ///< IPC
  ipc,   ///< CUDA IPC
};

/// A rank in a process of its own, on a device. Collective.
std::shared_ptr<GpuMember> make_gpu_process_member(std::shared_ptr<Communicator> communicator,
                                                   int device,
                                                   GpuSharing sharing = GpuSharing::best);

struct GpuPeer {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<GpuMember> member;
};
/// A rank in the caller's symmetric memory, through which the ranks meet as well. Collective.
GpuPeer join_gpu_peers(const PeerGroupOptions& options);

/// Bytes at the beginning of each part that the meetings of such ranks take.
inline constexpr std::int64_t kPeerMailboxBytes = 64 << 10;

}  // namespace megamoe
