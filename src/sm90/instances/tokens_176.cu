#include "sm90/instances/instance.cuh"

namespace megamoe::sm90 {

const void* kernel_176(KernelPart part) {
  return kernel_of_tile<176, 2>(part);
}

}  // namespace megamoe::sm90
