// What a machine has of GPUs.
#include <algorithm>

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "device/driver.hpp"

namespace megamoe::device {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

bool is_usable(int device) {
  return attribute(cudaDevAttrComputeCapabilityMajor, device) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor, device) == 0;
}

std::optional<PartitionFacts> partitions_of(int device) {
  const auto ask = driver_function<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>(
      "cuDeviceGetDevResource", 12040);
  CUdevResource resource{};
  if (ask == nullptr || ask(device, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return PartitionFacts{resource.sm.minSmPartitionSize, resource.sm.smCoscheduledAlignment};
}

bool exports_memory(int device) {
  const auto ask =
      driver_function<CUresult(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute", 2000);
  int value = 0;
  return ask != nullptr &&
         ask(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device) ==
             CUDA_SUCCESS &&
         value != 0;
}

DeviceFacts facts_of(int device, int count) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
  DeviceFacts facts;
  facts.device = device;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.usable = is_usable(device);
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  facts.cache_bytes = properties.l2CacheSize;
  for (int peer = 0; peer < count; ++peer) {
    int can = 0;
    if (peer != device && cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess && can != 0) {
      facts.peers.push_back(peer);
    }
  }
  facts.exports_memory = exports_memory(device);
  facts.partitions = partitions_of(device);
  return facts;
}

}  // namespace

DriverFacts driver_facts() {
  DriverFacts facts;
  facts.built = true;
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  cudaRuntimeGetVersion(&facts.runtime);
  cudaGetLastError();
  return facts;
}

std::vector<DeviceFacts> device_facts() {
  std::vector<DeviceFacts> facts;
  const int count = device_count();
  for (int device = 0; device < count; ++device) facts.push_back(facts_of(device, count));
  return facts;
}

int usable_devices() {
  int usable = 0;
  for (int device = 0; device < device_count(); ++device) usable += is_usable(device) ? 1 : 0;
  return usable;
}

void check_usable(int device) {
  const int count = device_count();
  if (count == 0) {
    fail(ErrorCode::unsupported,
         "there is no CUDA device here, or no driver for it: use the cpu backend, or look at "
         "nvidia-smi");
  }
  check_argument(device >= 0 && device < count, "CUDA device {}: this process sees 0 to {}", device,
                 count - 1);
  if (is_usable(device)) return;
  fail(ErrorCode::unsupported,
       "CUDA device {} has compute capability {}.{}: the kernels of this build run on 9.0 (Hopper) "
       "alone; use the cpu backend",
       device, attribute(cudaDevAttrComputeCapabilityMajor, device),
       attribute(cudaDevAttrComputeCapabilityMinor, device));
}

int multiprocessors() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return attribute(cudaDevAttrMultiProcessorCount, device);
}

}  // namespace megamoe::device
