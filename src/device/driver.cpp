#include "device/driver.hpp"

#include "base/check.hpp"
#include "device/cuda.hpp"

namespace megamoe::device {

void* find_driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  if (status != cudaSuccess) cudaGetLastError();
  const bool there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return there ? function : nullptr;
}

void check(CUresult status, std::string_view what) {
  if (status == CUDA_SUCCESS) return;
  const char* text = nullptr;
  const auto describe = driver_function<CUresult(CUresult, const char**)>("cuGetErrorString", 6000);
  if (describe != nullptr) describe(status, &text);
  const ErrorCode code =
      status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::internal;
  fail(code, "{} failed in the GPU's driver: {} (error {})", what,
       text != nullptr ? text : "no text for it", static_cast<int>(status));
}

}  // namespace megamoe::device
