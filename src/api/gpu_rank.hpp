// What the layers of one rank on a CUDA device share: the device, arenas, a stream, and the order
// of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megamoe/error.hpp"

#include "api/arena_shelf.hpp"
#include "device/gpu.hpp"
#include "layout/shape.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe {

class GpuRankArena {
 public:
  GpuRankArena(const LayerShape& shape, std::unique_ptr<SymmetricMemory> memory)
      : shape_(shape), memory_(std::move(memory)) {}
  const LayerShape& shape() const { return shape_; }
  /// Where the arenas of `ranks` ranks begin in this process' address space.
  std::vector<std::byte*> bases(int ranks) const;

 private:
  LayerShape shape_;
  std::unique_ptr<SymmetricMemory> memory_;
};

/// The begin and end of a call on its stream.
struct CallEvents {
  device::Event begin;
  device::Event end;
};

class GpuRank {
 public:
  GpuRank(std::shared_ptr<Communicator> communicator, std::shared_ptr<GpuMember> member)
      : communicator_(std::move(communicator)), member_(std::move(member)) {}

  const GpuMember& member() const { return *member_; }
  device::CurrentDevice use() const { return device::CurrentDevice(member_->device()); }
  /// Multiprocessors that are this rank's.
  std::int64_t share_of_multiprocessors() const;

  /// Collective.
  std::shared_ptr<GpuRankArena> arena(const LayerShape& shape);

  /// The rank's own stream, made when first asked for.
  device::StreamHandle stream();

  /// Throws the group's fault, if there is one.
  void check_usable() const;
  /// From now on every call is refused.
  void give_up(const Error& fault) { fault_ = fault; }

  /// Makes the stream wait for the rank's last call where that went to another stream. Then the
  /// call is enqueued, and end_call() keeps its events.
  void begin_call(const std::shared_ptr<CallEvents>& events, device::StreamHandle stream);
  void end_call(const std::shared_ptr<CallEvents>& events, device::StreamHandle stream);
  /// Makes the rank's own stream wait for what the device's default stream has been given.
  void follow_default_stream();

 private:
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<GpuMember> member_;
  ArenaShelf<GpuRankArena> arenas_;
  std::vector<std::shared_ptr<GpuRankArena>> kept_;  // of memory that is not given back
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> default_stream_;
  std::shared_ptr<CallEvents> last_;
  device::StreamHandle last_stream_ = nullptr;
  std::optional<Error> fault_;
};

}  // namespace megamoe
