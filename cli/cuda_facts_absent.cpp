#include "cli/cuda_facts.hpp"

namespace megamoe::cli {

CudaFacts cuda_facts() {
  return {};
}

}  // namespace megamoe::cli
