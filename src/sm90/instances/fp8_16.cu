#include "sm90/instances/instance.cuh"

namespace megamoe::sm90 {

const void* fp8_kernel_16(KernelPart part) {
  return kernel_of_tile<16, 4, true>(part);
}

}  // namespace megamoe::sm90
