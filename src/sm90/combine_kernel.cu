// K3 of the split: combine, after K2 of every rank.
#include "sm90/kernels.hpp"
#include "sm90/roles/combine.cuh"

namespace megamoe::sm90 {
namespace {

__global__ void __launch_bounds__(kCombineThreads, 1)
    combine_kernel(const __grid_constant__ KernelParams params) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  const Context c{params, ptx::shared_address(shared_bytes)};
  if (threadIdx.x == 0) {
    read_call(c);
    // Whoever gave the call up is over: y is NaN then, as the fused kernel leaves it.
    c.front().left = ptx::load_relaxed_sys(&c.region<FaultWords>(GpuRegion::fault)->fault.abort);
  }
  __syncthreads();
  combine<8>(c, threadIdx.x / 32, kCombineThreads / 32);
  // The other blocks do not ask for the number of the call.
  if (block_index() == 0 && threadIdx.x == 0 && !c.left()) {
    c.region<CallState>(GpuRegion::call_state)->call = c.call().number;
  }
}

}  // namespace

const void* combine_kernel_address() {
  return reinterpret_cast<const void*>(&combine_kernel);
}

}  // namespace megamoe::sm90
