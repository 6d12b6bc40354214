#include "sm90/instances/instance.cuh"

namespace megamoe::sm90 {

const void* fp8_kernel_32(KernelPart part) {
  return kernel_of_tile<32, 4, true>(part);
}

}  // namespace megamoe::sm90
