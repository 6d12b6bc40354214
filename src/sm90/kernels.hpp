// The instantiations of the fused kernel, by KernelShape.
#pragma once

#include "plan/sm90_kernel.hpp"

namespace megamoe::sm90 {

/// The kernel for a shape of kKernelShapes, as the runtime's launch functions take it.
const void* fused_kernel_of(const KernelShape& shape);

const void* fused_kernel_16();
const void* fused_kernel_32();
const void* fused_kernel_48();
const void* fused_kernel_64();
const void* fused_kernel_80();
const void* fused_kernel_96();
const void* fused_kernel_112();
const void* fused_kernel_128();
const void* fused_kernel_144();
const void* fused_kernel_160();
const void* fused_kernel_176();

}  // namespace megamoe::sm90
