// What `doctor` can say of CUDA: one of two files stands behind it, as the build has CUDA or not.
#pragma once

namespace megamoe::cli {

struct CudaFacts {
  bool built = false;
  int devices = 0;  ///< that the kernels of this build run on
};
CudaFacts cuda_facts();

}  // namespace megamoe::cli
