// The kernels of a build, as the runtime's launch functions take them.
#pragma once

#include "plan/sm90_kernel.hpp"

namespace megamoe::sm90 {

/// The kernel of one part for a shape of kKernelShapes.
const void* kernel_of(const KernelShape& shape, KernelPart part);

const void* kernel_16(KernelPart part);
const void* kernel_32(KernelPart part);
const void* kernel_48(KernelPart part);
const void* kernel_64(KernelPart part);
const void* kernel_80(KernelPart part);
const void* kernel_96(KernelPart part);
const void* kernel_112(KernelPart part);
const void* kernel_128(KernelPart part);
const void* kernel_144(KernelPart part);
const void* kernel_160(KernelPart part);
const void* kernel_176(KernelPart part);

const void* fp8_kernel_16(KernelPart part);
const void* fp8_kernel_32(KernelPart part);
const void* fp8_kernel_64(KernelPart part);
const void* fp8_kernel_96(KernelPart part);
const void* fp8_kernel_128(KernelPart part);
const void* fp8_kernel_144(KernelPart part);
const void* fp8_kernel_160(KernelPart part);

/// K3, whatever the tile: kCombineThreads threads a block, kSharedFrontBytes of shared memory.
const void* combine_kernel_address();
inline constexpr int kCombineThreads = 512;

}  // namespace megamoe::sm90
