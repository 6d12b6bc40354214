// Ranks in processes of their own: each maps the others' device memory, from descriptors of the
// driver's virtual memory or from CUDA IPC handles.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "device/virtual_memory.hpp"
#include "symmetric/gpu_agreement.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe {
namespace {

class VirtualParts final : public SymmetricMemory {
 public:
  VirtualParts(std::vector<device::VirtualMemory> parts, std::int64_t bytes)
      : parts_(std::move(parts)), bytes_(bytes) {}
  std::int64_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override { return parts_[static_cast<std::size_t>(rank)].get(); }

 private:
  std::vector<device::VirtualMemory> parts_;
  std::int64_t bytes_;
};

/// Another process' memory, opened by its IPC handle.
struct CloseIpc {
  void operator()(std::byte* memory) const { cudaIpcCloseMemHandle(memory); }
};
using IpcMapping = std::unique_ptr<std::byte, CloseIpc>;

class IpcParts final : public SymmetricMemory {
 public:
  IpcParts(int rank, device::Memory mine, std::vector<IpcMapping> others)
      : rank_(rank), mine_(std::move(mine)), others_(std::move(others)) {}
  std::int64_t bytes() const override { return mine_.bytes(); }
  std::byte* base(int rank) const override {
    return rank == rank_ ? mine_.get() : others_[static_cast<std::size_t>(rank)].get();
  }

 private:
  int rank_;
  device::Memory mine_;
  std::vector<IpcMapping> others_;  // by rank; null at the own
};

class ProcessMember final : public GpuMember {
 public:
  ProcessMember(std::shared_ptr<Communicator> communicator, int device, GpuSharing sharing)
      : communicator_(std::move(communicator)), device_(device) {
    bool mine = false;
    agree(*communicator_, "looking at the GPU", [&] {
      device::check_usable(device_);
      const auto all = device::device_facts();
      mine = sharing == GpuSharing::best && all[static_cast<std::size_t>(device_)].exports_memory;
    });
    const std::byte flag{mine ? std::uint8_t{1} : std::uint8_t{0}};
    const auto flags = communicator_->all_gather({&flag, 1}, "choosing how GPU memory is shared");
    descriptors_ = std::all_of(flags.begin(), flags.end(),
                               [](const auto& other) { return other[0] == std::byte{1}; });
  }

  int device() const override { return device_; }
  // Processes take turns on a device, unless a service of NVIDIA's joins them: each has all of it.
  int sharers() const override { return 1; }
  std::string_view way() const override {
    return descriptors_ ? "virtual memory, passed as descriptors" : "CUDA IPC";
  }

  std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) override {
    const device::CurrentDevice current(device_);
    return descriptors_ ? allocate_virtual(bytes) : allocate_ipc(bytes);
  }

 private:
  std::unique_ptr<SymmetricMemory> allocate_virtual(std::int64_t bytes) {
    device::VirtualMemory mine;
    FileDescriptor file;
    agree(*communicator_, "making GPU memory", [&] {
      mine = device::VirtualMemory::make(bytes);
      device::check(cudaMemset(mine.get(), 0, static_cast<std::size_t>(bytes)), "clearing memory");
      device::wait_for_device();
      file = FileDescriptor(mine.share());
    });
    const auto files = communicator_->exchange_files(file.get(), "sharing GPU memory");
    std::vector<device::VirtualMemory> parts;
    agree(*communicator_, "mapping GPU memory", [&] {
      for (int rank = 0; rank < communicator_->ranks(); ++rank) {
        parts.push_back(rank == communicator_->rank()
                            ? std::move(mine)
                            : device::VirtualMemory::import(
                                  files[static_cast<std::size_t>(rank)].get(), bytes));
      }
    });
    return std::make_unique<VirtualParts>(std::move(parts), bytes);
  }

  std::unique_ptr<SymmetricMemory> allocate_ipc(std::int64_t bytes) {
    device::Memory mine;
    cudaIpcMemHandle_t handle{};
    agree(*communicator_, "making GPU memory", [&] {
      mine = device::Memory(bytes, "the arena");
      mine.fill(0);
      device::wait_for_device();
      device::check(cudaIpcGetMemHandle(&handle, mine.get()), "sharing memory by CUDA IPC");
    });
    const auto handles = communicator_->all_gather(std::as_bytes(std::span(&handle, 1)),
                                                   "sharing GPU memory by CUDA IPC");
    std::vector<IpcMapping> others(handles.size());
    agree(*communicator_, "mapping GPU memory", [&] {
      for (std::size_t rank = 0; rank < handles.size(); ++rank) {
        if (static_cast<int>(rank) == communicator_->rank()) continue;
        std::memcpy(&handle, handles[rank].data(), sizeof handle);
        void* memory = nullptr;
        device::check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
                      "mapping another rank's memory by CUDA IPC");
        others[rank].reset(static_cast<std::byte*>(memory));
      }
    });
    return std::make_unique<IpcParts>(communicator_->rank(), std::move(mine), std::move(others));
  }

  std::shared_ptr<Communicator> communicator_;
  int device_;
  bool descriptors_ = false;
};

}  // namespace

std::shared_ptr<GpuMember> make_gpu_process_member(std::shared_ptr<Communicator> communicator,
                                                   int device, GpuSharing sharing) {
  return std::make_shared<ProcessMember>(std::move(communicator), device, sharing);
}

}  // namespace megamoe
