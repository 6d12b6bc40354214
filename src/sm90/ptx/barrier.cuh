// Barriers in shared memory (mbarrier), named barriers of a block, and the register budget of a
// warpgroup.
#pragma once

#include <cstdint>

namespace megamoe::sm90::ptx {

/// The 32-bit shared-memory address of a generic pointer into this block's shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// One thread, before fence_barrier_init and a block-wide barrier.
__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes barrier_init visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and adds `bytes` to what the phase waits for.
__device__ __forceinline__ void barrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One attempt that the hardware may suspend for some microseconds. True when the phase with this
/// parity is over; everything before the arrivals is then visible.
__device__ __forceinline__ bool barrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Waits until the phase with this parity is over, or the word at `way_out` is not zero. The loop
/// is one statement so that the compiler cannot spread it around the matrix instructions that
/// follow.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity,
                                             std::uint32_t way_out) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .u32 out;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra over;\n"
      "ld.volatile.shared.u32 out, [%2];\n"
      "setp.ne.u32 p, out, 0;\n"
      "@!p bra again;\n"
      "over:\n}" ::"r"(barrier),
      "r"(parity), "r"(way_out)
      : "memory");
}

/// Barrier `id` (1 to 15; 0 is __syncthreads) among `threads` threads of the block.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Gives registers back, or takes them; all warps of a warpgroup, a multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace megamoe::sm90::ptx
