#include "mqa_logits/sm90/kernel.cuh"
#include "mqa_logits/sm90/kernels.hpp"

namespace megamoe::mqa {

const void* kernel_dim_64_f32(int heads) {
  if (heads == 64) return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 64, 0>);
  if (heads == 32) return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 32, 0>);
  return reinterpret_cast<const void*>(&mqa_logits_kernel<64, 16, 0>);
}

}  // namespace megamoe::mqa
