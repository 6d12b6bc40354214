#include "device/cuda.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace megamoe::device {
namespace {

void enable_peer_access(int from, int to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to), "asking for peer access");
  if (can == 0) {
    fail(ErrorCode::unsupported,
         "device {} cannot address the memory of device {}: ranks need devices that NVLink or a "
         "PCIe switch connects",
         from, to);
  }
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  check(status, "enabling peer access");
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::internal;
  fail(code, "{} failed on the GPU: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void use_device(int device) {
  check(cudaSetDevice(device), "choosing a device");
}

CurrentDevice::CurrentDevice(int device) {
  check(cudaGetDevice(&before_), "asking for the current device");
  use_device(device);
}

CurrentDevice::~CurrentDevice() {
  cudaSetDevice(before_);
}

void enable_peer_access(const std::vector<int>& devices) {
  for (const int from : devices) {
    const CurrentDevice current(from);
    for (const int to : devices) {
      if (to != from) enable_peer_access(from, to);
    }
  }
}

void enable_peer_access(int count) {
  std::vector<int> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
  enable_peer_access(devices);
}

std::int64_t free_bytes() {
  std::size_t free_now = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free_now, &total), "asking for free memory");
  return static_cast<std::int64_t>(free_now);
}

void wait_for_device() {
  check(cudaDeviceSynchronize(), "waiting for the device");
}

Memory::Memory(std::int64_t bytes, std::string_view what) : bytes_(bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_now = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free_now, &total);
    fail(
        ErrorCode::out_of_memory,
        "{} needs {} bytes of GPU memory, {} of {} are free: use a smaller max_tokens or free some",
        what, bytes, free_now, total);
  }
  check(status, what);
  memory_.reset(static_cast<std::byte*>(memory));
}

void Memory::Free::operator()(std::byte* memory) const {
  cudaFree(memory);
}

void Memory::fill(int byte) {
  check(cudaMemset(memory_.get(), byte, static_cast<std::size_t>(bytes_)), "filling memory");
}

void Memory::copy_from(const void* host, std::int64_t bytes, std::int64_t offset) {
  check(cudaMemcpy(memory_.get() + offset, host, static_cast<std::size_t>(bytes),
                   cudaMemcpyHostToDevice),
        "copying to the GPU");
}

void Memory::copy_to(void* host, std::int64_t bytes, std::int64_t offset) const {
  check(cudaMemcpy(host, memory_.get() + offset, static_cast<std::size_t>(bytes),
                   cudaMemcpyDeviceToHost),
        "copying from the GPU");
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
}

void Stream::Destroy::operator()(StreamHandle stream) const {
  cudaStreamDestroy(stream);
}

void Stream::wait() const {
  check(cudaStreamSynchronize(stream_.get()), "waiting for a stream");
}

void Stream::copy(void* to, const void* from, std::int64_t bytes) const {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, get()),
        "copying on a stream");
}

bool is_capturing(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking a stream for its state");
  return status != cudaStreamCaptureStatusNone;
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making an event");
  event_.reset(event);
}

void Event::Destroy::operator()(CUevent_st* event) const {
  cudaEventDestroy(event);
}

void Event::record(StreamHandle stream) {
  check(cudaEventRecord(event_.get(), stream), "recording an event");
}

void Event::hold(StreamHandle stream) const {
  check(cudaStreamWaitEvent(stream, event_.get(), 0), "making a stream wait");
}

bool Event::over() const {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "a call on the GPU");
  return true;
}

double Event::microseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventSynchronize(event_.get()), "waiting for an event");
  check(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()),
        "reading a pair of events");
  return milliseconds * 1e3;
}

Graph::Graph(const Stream& stream, const std::function<void()>& record) {
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
        "beginning to capture a graph");
  cudaGraph_t graph = nullptr;
  try {
    record();
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &graph), "capturing a graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "making a graph");
  graph_.reset(executable);
}

void Graph::Destroy::operator()(CUgraphExec_st* graph) const {
  cudaGraphExecDestroy(graph);
}

void Graph::launch(StreamHandle stream) const {
  check(cudaGraphLaunch(graph_.get(), stream), "launching a graph");
}

}  // namespace megamoe::device
