// The instantiations of the kernel.
#pragma once

#include "mqa_logits/sm90/params.hpp"

namespace megamoe::mqa {

/// As the runtime's launch functions take it. heads: 16, 32 or 64.
const void* kernel_of(const KernelShape& shape);

const void* kernel_dim_32_f32(int heads);
const void* kernel_dim_32_f16(int heads);
const void* kernel_dim_64_f32(int heads);
const void* kernel_dim_64_f16(int heads);
const void* kernel_dim_128_f32(int heads);
const void* kernel_dim_128_f16(int heads);

}  // namespace megamoe::mqa
