// For code that calls CUDA's runtime itself: its header, and errors that say what was asked of it.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "device/gpu.hpp"

namespace megamoe::device {

/// Throws Error{out_of_memory} or Error{internal} that names `what` unless `status` is success.
void check(cudaError_t status, std::string_view what);

}  // namespace megamoe::device
