// Memory of a device that other processes can map: the driver's virtual memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace megamoe::device {

/// Memory of one device, mapped for the current device; unmapped with this. It lives until its last
/// mapping in any process is gone.
class VirtualMemory {
 public:
  VirtualMemory() = default;
  /// New memory of the current device. Throws Error{out_of_memory}, and Error{unsupported} that
  /// names what the driver lacks.
  static VirtualMemory make(std::int64_t bytes);
  /// Another process' memory of `bytes`, from its descriptor, which may be closed afterwards.
  /// Throws Error{unsupported} when the current device cannot address it.
  static VirtualMemory import(int descriptor, std::int64_t bytes);

  VirtualMemory(VirtualMemory&& other) noexcept { swap(other); }
  VirtualMemory& operator=(VirtualMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~VirtualMemory();

  std::byte* get() const { return reinterpret_cast<std::byte*>(address_); }

  /// A new descriptor of memory that make() made, for other processes; the caller closes it.
  int share() const;

 private:
  void swap(VirtualMemory& other) {
    std::swap(handle_, other.handle_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }
  void map(std::int64_t bytes);

  unsigned long long handle_ = 0;   // of the driver; 0: none
  unsigned long long address_ = 0;  // 0: not mapped
  std::int64_t bytes_ = 0;          // whole granules
};

}  // namespace megamoe::device
