#include "sm90/instances/instance.cuh"

namespace megamoe::sm90 {

const void* fp8_kernel_64(KernelPart part) {
  return kernel_of_tile<64, 2, true>(part);
}

}  // namespace megamoe::sm90
