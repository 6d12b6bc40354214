#include "cli/cuda_facts.hpp"
#include "device/cuda.hpp"

namespace megamoe::cli {

CudaFacts cuda_facts() {
  return {.built = true, .devices = device::usable_devices()};
}

}  // namespace megamoe::cli
