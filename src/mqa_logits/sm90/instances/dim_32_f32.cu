#include "mqa_logits/sm90/kernel.cuh"
#include "mqa_logits/sm90/kernels.hpp"

namespace megamoe::mqa {

const void* kernel_dim_32_f32(int heads) {
  if (heads == 64) return reinterpret_cast<const void*>(&mqa_logits_kernel<32, 64, 0>);
  if (heads == 32) return reinterpret_cast<const void*>(&mqa_logits_kernel<32, 32, 0>);
  return reinterpret_cast<const void*>(&mqa_logits_kernel<32, 16, 0>);
}

}  // namespace megamoe::mqa
