#include "mqa_logits/sm90/kernel.cuh"
#include "mqa_logits/sm90/kernels.hpp"

namespace megamoe::mqa {

const void* kernel_dim_64_f16(int heads) {
  if (heads == 64) return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 64, 1>);
  if (heads == 32) return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 32, 1>);
  return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 16, 1>);
}

}  // namespace megamoe::mqa
