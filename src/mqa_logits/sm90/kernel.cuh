// The kernel of the MQA logits: persistent thread blocks of two math warpgroups and one that feeds
// them.
#pragma once

#include "mqa_logits/sm90/math.cuh"

namespace megamoe::mqa {

template <KernelShape S>
__device__ __forceinline__ void init_barriers(const Params& p, SharedMemory<S>& shared) {
  constexpr int kMathWarps = kMathGroups * 4;
  for (int s = 0; s < S.stages(); ++s) {
    ptx::barrier_init(ptx::shared_address(&shared.kv_full[s]), 1);
    ptx::barrier_init(ptx::shared_address(&shared.kv_empty[s]), kMathWarps);
  }
  for (int s = 0; s < 2; ++s) {
    ptx::barrier_init(ptx::shared_address(&shared.q_raw[s]), 1);
    ptx::barrier_init(ptx::shared_address(&shared.q_full[s]), kPrepareThreads);
    ptx::barrier_init(ptx::shared_address(&shared.q_empty[s]), kMathWarps);
  }
  ptx::fence_barrier_init();
  ptx::prefetch_map(p.q);
  ptx::prefetch_map(p.kv);
  ptx::prefetch_map(p.scales);
}

/// Integers, since nvcc's host stubs cannot name a class of a nested namespace.
template <int kHeadDim, int kHeads, int kF16>
__global__ void __launch_bounds__(kThreads, 1)
    mqa_logits_kernel(const __grid_constant__ Params params) {
  constexpr KernelShape S{kHeadDim, kHeads,
                          kF16 != 0 ? MqaWeightFormat::f16 : MqaWeightFormat::f32};
  static_assert(sizeof(SharedMemory<S>) <= kMaxSharedBytes);
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  auto& shared = *reinterpret_cast<SharedMemory<S>*>(shared_bytes);
  if (threadIdx.x == 0) init_barriers<S>(params, shared);
  find_share<S>(params, shared);
  if (__shfl_sync(~0u, threadIdx.x / 128, 0) == kMathGroups) {
    sm90::ptx::decrease_registers<S.loader_registers()>();
    if (threadIdx.x / 32 == kMathGroups * 4) {
      keys_role<S>(params, shared);
    } else {
      queries_role<S>(params, shared);
    }
  } else {
    sm90::ptx::increase_registers<S.math_registers()>();
    math_role<S>(params, shared);
  }
}

}  // namespace megamoe::mqa
