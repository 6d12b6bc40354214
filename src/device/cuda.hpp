// CUDA handles that free what they own, and errors that say what was asked of the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <cuda_runtime_api.h>

namespace megamoe::device {

/// Throws Error{out_of_memory} or Error{internal} that names `what` unless `status` is success.
void check(cudaError_t status, std::string_view what);

/// Devices that can run the kernels of this build (compute capability 9.0); 0 without a driver.
int usable_devices();

/// Streaming multiprocessors of the current device.
int multiprocessors();

/// Makes `device` the current one of this thread.
void use_device(int device);

/// Lets each of devices 0 to count - 1 address the memory of the others by ordinary loads and
/// stores. Throws Error{unsupported} that names a pair which cannot.
void enable_peer_access(int count);

/// Memory of the current device; freed with this.
class Memory {
 public:
  Memory() = default;
  /// Throws Error{out_of_memory} with the bytes needed and free.
  Memory(std::int64_t bytes, std::string_view what);

  std::byte* get() const { return memory_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }
  std::int64_t bytes() const { return bytes_; }
  void fill(int byte);
  void copy_from(const void* host, std::int64_t bytes, std::int64_t offset = 0);

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t bytes_ = 0;
};

class Stream {
 public:
  Stream();
  cudaStream_t get() const { return stream_.get(); }
  void wait() const;

 private:
  struct Destroy {
    using pointer = cudaStream_t;
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<cudaStream_t, Destroy> stream_;
};

class Event {
 public:
  Event();
  void record(cudaStream_t stream);
  /// Microseconds since `earlier`; both are over.
  double microseconds_since(const Event& earlier) const;

 private:
  struct Destroy {
    using pointer = cudaEvent_t;
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<cudaEvent_t, Destroy> event_;
};

}  // namespace megamoe::device
