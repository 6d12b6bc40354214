#include "sm90/fused.cuh"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

const void* fused_kernel_112() {
  return reinterpret_cast<const void*>(&fused_kernel<112, 2>);
}

}  // namespace megamoe::sm90
