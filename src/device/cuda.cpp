#include "device/cuda.hpp"

#include "base/check.hpp"

namespace megamoe::device {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::internal;
  fail(code, "{} failed on the GPU: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

int usable_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  int usable = 0;
  for (int d = 0; d < count; ++d) {
    int major = 0;
    int minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d);
    if (major == 9 && minor == 0) ++usable;
  }
  return usable;
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking for the number of multiprocessors");
  return count;
}

void use_device(int device) {
  check(cudaSetDevice(device), "choosing a device");
}

void enable_peer_access(int count) {
  int before = 0;
  check(cudaGetDevice(&before), "asking for the current device");
  for (int from = 0; from < count; ++from) {
    use_device(from);
    for (int to = 0; to < count; ++to) {
      if (to == from) continue;
      int can = 0;
      check(cudaDeviceCanAccessPeer(&can, from, to), "asking for peer access");
      if (can == 0) {
        fail(
            ErrorCode::unsupported,
            "device {} cannot address the memory of device {}: ranks need devices that NVLink or a "
            "PCIe switch connects",
            from, to);
      }
      const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        continue;
      }
      check(status, "enabling peer access");
    }
  }
  use_device(before);
}

Memory::Memory(std::int64_t bytes, std::string_view what) : bytes_(bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(
        ErrorCode::out_of_memory,
        "{} needs {} bytes of GPU memory, {} of {} are free: use a smaller max_tokens or free some",
        what, bytes, free_bytes, total_bytes);
  }
  check(status, what);
  memory_.reset(static_cast<std::byte*>(memory));
}

void Memory::fill(int byte) {
  check(cudaMemset(memory_.get(), byte, static_cast<std::size_t>(bytes_)), "filling memory");
}

void Memory::copy_from(const void* host, std::int64_t bytes, std::int64_t offset) {
  check(cudaMemcpy(memory_.get() + offset, host, static_cast<std::size_t>(bytes),
                   cudaMemcpyHostToDevice),
        "copying to the GPU");
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
}

void Stream::wait() const {
  check(cudaStreamSynchronize(stream_.get()), "waiting for a stream");
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making an event");
  event_.reset(event);
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_.get(), stream), "recording an event");
}

double Event::microseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventSynchronize(event_.get()), "waiting for an event");
  check(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()),
        "reading a pair of events");
  return milliseconds * 1e3;
}

}  // namespace megamoe::device
