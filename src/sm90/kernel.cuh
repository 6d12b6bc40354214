// The kernels: the whole layer of one rank as one persistent cooperative launch, or the two halves
// of the split, which are lists of the same roles.
#pragma once

#include "sm90/roles/combine.cuh"
#include "sm90/roles/count.cuh"
#include "sm90/roles/dispatch.cuh"
#include "sm90/roles/loaders.cuh"
#include "sm90/roles/math.cuh"

namespace megamoe::sm90 {

template <KernelShape S>
__device__ __forceinline__ void init_barriers(const Context& c) {
  if (threadIdx.x != 0) return;
  const SharedLayout& shared = c.params.shared;
  for (int s = 0; s < shared.stages; ++s) {
    ptx::barrier_init(c.full(s), 2);  // the two loaders
    ptx::barrier_init(c.empty(s), S.math_warps());
  }
  for (int s = 0; s < kTaskRing; ++s) {
    ptx::barrier_init(c.shared + offsetof(SharedFront, task_full) + s * 8, 1);
    ptx::barrier_init(c.shared + offsetof(SharedFront, task_empty) + s * 8, S.math_warps() + 1);
  }
  for (int w = 0; w < kDispatchWarps; ++w) {
    ptx::barrier_init(c.shared + offsetof(SharedFront, dispatch_full) + w * 8, 1);
  }
  for (int t = 0; t < S.tokens; ++t) c.in_shared<std::uint32_t>(shared.maxima)[t] = 0;
  c.front().left = 0;
  read_call(c);
  ptx::fence_barrier_init();
}

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void loader_group(const Context& c) {
  const int warp = threadIdx.x % kWarpgroup / 32;
  const bool leader = threadIdx.x % 32 == 0;
  if (warp == 0) {
    if (leader) weights_loader_role<S, P>(c);
  } else if (warp == 1) {
    if (leader) tokens_loader_role<S, P>(c);
  } else if constexpr (does_gemm1(P)) {
    dispatch_role<S>(c, warp - 2);
  }
}

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void math_group(const Context& c) {
  math_role<S, P>(c);
  if constexpr (P == KernelPart::fused) {
    const bool whole = barrier_b<S>(c);
    if (whole && block_index() == 0 && threadIdx.x == 0) {
      // Every block has read the number of this call; the next call is a later launch.
      c.region<CallState>(GpuRegion::call_state)->call = c.call().number;
    }
    // As many loads in flight as the registers of a math warp can take.
    combine<S.math_groups == 2 ? 8 : 4>(c, threadIdx.x / 32, S.math_warps());
  } else if constexpr (P == KernelPart::k2) {
    finish_pushes<S>(c);
  }
}

/// False: the block has left.
template <KernelShape S, KernelPart P>
__device__ __forceinline__ bool begin_call(const Context& c) {
  if constexpr (P == KernelPart::k2) return follow_k1(c, S.tokens);
  const bool here = count_phase(c, S.tokens);
  if (P == KernelPart::k1 && here) open_k2(c);
  return here;
}

/// Integers, since nvcc's host stubs cannot name a class of a nested namespace.
template <int kTokens, int kMathGroups, bool kFp8, int kPart>
__global__ void __launch_bounds__(KernelShape{kTokens, kMathGroups}.threads(), 1)
    layer_kernel(const __grid_constant__ KernelParams params) {
  constexpr KernelShape S{kTokens, kMathGroups, kFp8};
  constexpr auto P = static_cast<KernelPart>(kPart);
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  const Context c{params, ptx::shared_address(shared_bytes)};
  init_barriers<S>(c);
  __syncthreads();
  const bool here = begin_call<S, P>(c);
  // The stages were scratch memory of the count; from here on the copy engine writes them.
  ptx::fence_async_proxy();
  __syncthreads();
  if (!here) {
    if (P == KernelPart::fused) combine<1>(c, threadIdx.x / 32, S.threads() / 32);
    return;
  }
  if (uniform(static_cast<int>(threadIdx.x / kWarpgroup)) == S.math_groups) {
    ptx::decrease_registers<S.loader_registers(P)>();
    loader_group<S, P>(c);
  } else {
    ptx::increase_registers<S.math_registers(P)>();
    math_group<S, P>(c);
  }
}

}  // namespace megamoe::sm90
