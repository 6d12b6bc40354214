// The kernels of one tile.
#pragma once

#include "sm90/kernel.cuh"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

template <int kTokens, int kMathGroups, bool kFp8, KernelPart P>
const void* kernel_address() {
  return reinterpret_cast<const void*>(
      &layer_kernel<kTokens, kMathGroups, kFp8, static_cast<int>(P)>);
}

template <int kTokens, int kMathGroups, bool kFp8 = false>
const void* kernel_of_tile(KernelPart part) {
  if constexpr (has_kernel({kTokens, kMathGroups, kFp8}, KernelPart::k1)) {
    if (part == KernelPart::k1) return kernel_address<kTokens, kMathGroups, kFp8, KernelPart::k1>();
    if (part == KernelPart::k2) return kernel_address<kTokens, kMathGroups, kFp8, KernelPart::k2>();
  }
  return kernel_address<kTokens, kMathGroups, kFp8, KernelPart::fused>();
}

}  // namespace megamoe::sm90
