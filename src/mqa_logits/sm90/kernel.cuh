// The kernel of the MQA logits: persistent thread blocks of four math warpgroups and the two or
// three warps that feed them.
#pragma once

#include "mqa_logits/sm90/math.cuh"

namespace megamoe::mqa {

template <KernelShape S>
__device__ __forceinline__ void init_barriers(const Params& p, SharedMemory<S>& shared) {
  for (int s = 0; s < S.stages(); ++s) {
    ptx::barrier_init(ptx::shared_address(&shared.kv_full[s]), 1);
    ptx::barrier_init(ptx::shared_address(&shared.kv_empty[s]), kMathWarps);
  }
  for (int s = 0; s < 2; ++s) {
    ptx::barrier_init(ptx::shared_address(&shared.q_raw[s]), 1);
    ptx::barrier_init(ptx::shared_address(&shared.q_full[s]), S.prepare_threads());
    ptx::barrier_init(ptx::shared_address(&shared.q_empty[s]), kMathWarps);
  }
  ptx::fence_barrier_init();
  ptx::prefetch_map(p.q);
  ptx::prefetch_map(p.kv);
  ptx::prefetch_map(p.scales);
}

/// Integers, since nvcc's host stubs cannot name a class of a nested namespace.
template <int kHeadDim, int kHeads, int kF16>
__global__ void __launch_bounds__(KernelShape{kHeadDim, kHeads,
                                              kF16 != 0 ? MqaWeightFormat::f16
                                                        : MqaWeightFormat::f32}
                                      .threads(),
                                  1) mqa_logits_kernel(const __grid_constant__ Params params) {
  constexpr KernelShape S{kHeadDim, kHeads,
                          kF16 != 0 ? MqaWeightFormat::f16 : MqaWeightFormat::f32};
  static_assert(sizeof(SharedMemory<S>) <= kMaxSharedBytes);
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  auto& shared = *reinterpret_cast<SharedMemory<S>*>(shared_bytes);
  if (threadIdx.x == 0) init_barriers<S>(params, shared);
  find_share<S>(params, shared);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  if (warp < kMathWarps) {
    math_role<S>(params, shared);
  } else if (warp == kMathWarps) {
    keys_role<S>(params, shared);
  } else {
    queries_role<S>(params, shared);
  }
}

}  // namespace megamoe::mqa
