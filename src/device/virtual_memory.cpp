#include "device/virtual_memory.hpp"

#include "base/check.hpp"
#include "base/integers.hpp"
#include "device/cuda.hpp"
#include "device/driver.hpp"

namespace megamoe::device {
namespace {

// The functions came with CUDA 10.2.
constexpr unsigned kVersion = 10020;

/// A function of the driver by the name of its declaration.
template <class Function>
Function* function_of(const char* name, Function*) {
  Function* const function = driver_function<Function>(name, kVersion);
  if (function != nullptr) return function;
  fail(ErrorCode::unsupported,
       "the GPU's driver has no {}, which came with CUDA 10.2: use a newer driver", name);
}
#define MEGAMOE_DRIVER(name) function_of(#name, static_cast<decltype(&::name)>(nullptr))

CUmemAllocationProp properties_of_current() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

/// The driver's functions want the current device's context, which the runtime makes when first
/// needed.
void make_context() {
  check(cudaFree(nullptr), "starting to use a device");
}

std::int64_t whole_granules(std::int64_t bytes) {
  const CUmemAllocationProp properties = properties_of_current();
  std::size_t granule = 0;
  check(MEGAMOE_DRIVER(cuMemGetAllocationGranularity)(&granule, &properties,
                                                      CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "asking for the size of memory granules");
  return round_up(bytes, static_cast<std::int64_t>(granule));
}

}  // namespace

VirtualMemory VirtualMemory::make(std::int64_t bytes) {
  make_context();
  const std::int64_t whole = whole_granules(bytes);
  const CUmemAllocationProp properties = properties_of_current();
  VirtualMemory memory;
  const CUresult status =
      MEGAMOE_DRIVER(cuMemCreate)(&memory.handle_, static_cast<std::size_t>(whole), &properties, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) {
    fail(ErrorCode::out_of_memory,
         "the arena needs {} bytes of GPU memory, {} are free: use a smaller max_tokens or free "
         "some",
         whole, free_bytes());
  }
  check(status, "making memory for other processes");
  memory.map(whole);
  return memory;
}

VirtualMemory VirtualMemory::import(int descriptor, std::int64_t bytes) {
  make_context();
  VirtualMemory memory;
  void* const file = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  check(MEGAMOE_DRIVER(cuMemImportFromShareableHandle)(&memory.handle_, file,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "importing another process' GPU memory");
  memory.map(whole_granules(bytes));
  return memory;
}

void VirtualMemory::map(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  CUdeviceptr address = 0;
  check(MEGAMOE_DRIVER(cuMemAddressReserve)(&address, size, 0, 0, 0), "reserving GPU addresses");
  if (const CUresult status = MEGAMOE_DRIVER(cuMemMap)(address, size, 0, handle_, 0);
      status != CUDA_SUCCESS) {
    MEGAMOE_DRIVER(cuMemAddressFree)(address, size);
    check(status, "mapping GPU memory");
  }
  address_ = address;  // from here on the destructor unmaps
  bytes_ = bytes;
  const CUmemAccessDesc access{properties_of_current().location,
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult status = MEGAMOE_DRIVER(cuMemSetAccess)(address, size, &access, 1);
  if (status == CUDA_SUCCESS) return;
  fail(
      ErrorCode::unsupported,
      "device {} cannot address the memory of another rank's device (error {}): ranks need devices "
      "that NVLink or a PCIe switch connects",
      properties_of_current().location.id, static_cast<int>(status));
}

int VirtualMemory::share() const {
  int descriptor = -1;
  check(MEGAMOE_DRIVER(cuMemExportToShareableHandle)(&descriptor, handle_,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "exporting GPU memory");
  return descriptor;
}

VirtualMemory::~VirtualMemory() {
  // Whatever exists was made with functions that the driver has.
  if (address_ != 0) {
    const auto size = static_cast<std::size_t>(bytes_);
    MEGAMOE_DRIVER(cuMemUnmap)(address_, size);
    MEGAMOE_DRIVER(cuMemAddressFree)(address_, size);
  }
  if (handle_ != 0) MEGAMOE_DRIVER(cuMemRelease)(handle_);
}

#undef MEGAMOE_DRIVER

}  // namespace megamoe::device
