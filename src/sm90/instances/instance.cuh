// The kernels of one tile.
#pragma once

#include "sm90/kernel.cuh"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

template <int kTokens, int kMathGroups>
const void* kernel_of_tile(KernelPart part) {
  constexpr auto at = [](KernelPart p) { return static_cast<int>(p); };
  if constexpr (has_kernel({kTokens, kMathGroups}, KernelPart::k1)) {
    if (part == KernelPart::k1) {
      return reinterpret_cast<const void*>(&layer_kernel<kTokens, kMathGroups, at(KernelPart::k1)>);
    }
    if (part == KernelPart::k2) {
      return reinterpret_cast<const void*>(&layer_kernel<kTokens, kMathGroups, at(KernelPart::k2)>);
    }
  }
  return reinterpret_cast<const void*>(&layer_kernel<kTokens, kMathGroups, at(KernelPart::fused)>);
}

}  // namespace megamoe::sm90
