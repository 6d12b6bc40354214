#include "sm90/instances/instance.cuh"

namespace megamoe::sm90 {

const void* fp8_kernel_144(KernelPart part) {
  return kernel_of_tile<144, 2, true>(part);
}

}  // namespace megamoe::sm90
