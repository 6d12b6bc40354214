// What a machine has of GPUs, and handles of GPU memory, streams, events and graphs that free what
// they own. No header of CUDA: rooms that the host's compiler alone sees use these. A build without
// CUDA has the same functions (src/no_cuda/): it sees no device, and making a handle throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The runtime's own types behind cudaStream_t, cudaEvent_t and cudaGraphExec_t.
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace megamoe::device {

using StreamHandle = CUstream_st*;

struct DriverFacts {
  bool built = false;  ///< whether this build has CUDA
  int driver = 0;      ///< the newest CUDA that the driver runs, 13000 for 13.0; 0 without a driver
  int runtime = 0;     ///< of this build
};
DriverFacts driver_facts();

/// How multiprocessors can be cut into partitions (green contexts).
struct PartitionFacts {
  std::int64_t least_multiprocessors = 0;
  std::int64_t step_multiprocessors = 0;
};

struct DeviceFacts {
  int device = 0;  ///< its number in this process
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  bool usable = false;  ///< the kernels of this build run on it
  std::int64_t multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t cache_bytes = 0;              ///< L2
  std::vector<int> peers;                    ///< devices whose memory it can address
  bool exports_memory = false;               ///< as POSIX descriptors, for ranks in other processes
  std::optional<PartitionFacts> partitions;  ///< absent: the driver does not say
};

/// All devices of this process; none without a driver. Does not start to use a device.
std::vector<DeviceFacts> device_facts();

/// Devices that can run the kernels of this build (compute capability 9.0); 0 without a driver.
int usable_devices();

/// Throws Error{unsupported} that says what is wanted unless the kernels of this build run on it.
void check_usable(int device);

/// Streaming multiprocessors of the current device.
int multiprocessors();

/// Makes `device` the current one of this thread.
void use_device(int device);

/// The same for as long as this lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

/// Lets each of devices 0 to count - 1 address the memory of the others by ordinary loads and
/// stores. Throws Error{unsupported} that names a pair which cannot.
void enable_peer_access(int count);
/// The same for these devices.
void enable_peer_access(const std::vector<int>& devices);

/// Bytes of the current device that can still be had.
std::int64_t free_bytes();

/// Waits for everything that the current device was given. Not between the calls of its ranks.
void wait_for_device();

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
  void copy_to(void* host, std::int64_t bytes, std::int64_t offset = 0) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t bytes_ = 0;
};

/// A stream of the current device that does not wait for its default stream.
class Stream {
 public:
  Stream();
  StreamHandle get() const { return stream_.get(); }
  void wait() const;

  /// Between memory of this device, its peers and the host, in the stream's order. Host memory must
  /// stay until the stream has come past.
  void copy(void* to, const void* from, std::int64_t bytes) const;

 private:
  struct Destroy {
    using pointer = StreamHandle;
    void operator()(StreamHandle stream) const;
  };
  std::unique_ptr<StreamHandle, Destroy> stream_;
};

/// Whether calls on the stream go into a graph instead of running.
bool is_capturing(StreamHandle stream);

class Event {
 public:
  Event();
  void record(StreamHandle stream);
  /// Makes what the stream is given from now on wait for the recorded point.
  void hold(StreamHandle stream) const;
  /// Whether the recorded point is over. Throws what the device ran into.
  bool over() const;
  /// Microseconds since `earlier`; waits for this one.
  double microseconds_since(const Event& earlier) const;

 private:
  struct Destroy {
    using pointer = CUevent_st*;
    void operator()(CUevent_st* event) const;
  };
  std::unique_ptr<CUevent_st*, Destroy> event_;
};

/// What was given to a stream, to be given again at once.
class Graph {
 public:
  /// Captures what `record` enqueues on `stream`.
  Graph(const Stream& stream, const std::function<void()>& record);
  void launch(StreamHandle stream) const;

 private:
  struct Destroy {
    using pointer = CUgraphExec_st*;
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st*, Destroy> graph_;
};

}  // namespace megamoe::device
