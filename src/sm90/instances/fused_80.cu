#include "sm90/fused.cuh"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

const void* fused_kernel_80() {
  return reinterpret_cast<const void*>(&fused_kernel<80, 2>);
}

}  // namespace megamoe::sm90
