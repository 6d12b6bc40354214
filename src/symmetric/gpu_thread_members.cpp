// Ranks of one process on CUDA devices: plain device memory, and peer access between the devices.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "device/gpu.hpp"
#include "symmetric/gpu_agreement.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe {
namespace {

using Part = std::shared_ptr<device::Memory>;

/// Where the ranks leave their parts for each other. Any thread.
class Board {
 public:
  explicit Board(std::size_t ranks) : parts_(ranks) {}
  void put(int rank, Part part) {
    const std::lock_guard lock(mutex_);
    parts_[static_cast<std::size_t>(rank)] = std::move(part);
  }
  std::vector<Part> all() const {
    const std::lock_guard lock(mutex_);
    return parts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

/// A part lives until the last rank that maps it is gone.
class SharedParts final : public SymmetricMemory {
 public:
  explicit SharedParts(std::vector<Part> parts) : parts_(std::move(parts)) {}
  std::int64_t bytes() const override { return parts_[0]->bytes(); }
  std::byte* base(int rank) const override { return parts_[static_cast<std::size_t>(rank)]->get(); }

 private:
  std::vector<Part> parts_;
};

class ThreadMember final : public GpuMember {
 public:
  ThreadMember(std::shared_ptr<Communicator> communicator, std::shared_ptr<Board> board, int device,
               int sharers)
      : communicator_(std::move(communicator)),
        board_(std::move(board)),
        device_(device),
        sharers_(sharers) {}

  int device() const override { return device_; }
  int sharers() const override { return sharers_; }
  std::string_view way() const override { return "devices of one process, by peer access"; }

  std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) override {
    agree(*communicator_, "making GPU memory", [&] {
      const device::CurrentDevice current(device_);
      auto part = std::make_shared<device::Memory>(bytes, "the arena");
      part->fill(0);
      device::wait_for_device();
      board_->put(communicator_->rank(), std::move(part));
    });
    auto memory = std::make_unique<SharedParts>(board_->all());
    agree(*communicator_, "mapping GPU memory", [] {});
    board_->put(communicator_->rank(), nullptr);
    return memory;
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Board> board_;
  int device_;
  int sharers_;
};

}  // namespace

std::vector<std::shared_ptr<GpuMember>> make_gpu_thread_members(
    const std::vector<std::shared_ptr<Communicator>>& communicators,
    const std::vector<int>& devices) {
  for (const int device : devices) device::check_usable(device);
  std::vector<int> distinct = devices;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() > 1) device::enable_peer_access(distinct);
  const auto board = std::make_shared<Board>(devices.size());
  std::vector<std::shared_ptr<GpuMember>> members;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto sharers = std::count(devices.begin(), devices.end(), devices[rank]);
    members.push_back(std::make_shared<ThreadMember>(communicators[rank], board, devices[rank],
                                                     static_cast<int>(sharers)));
  }
  return members;
}

}  // namespace megamoe
