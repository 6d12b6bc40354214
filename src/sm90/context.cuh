// What every role of a block sees: arguments, shared memory, the state of the call, and the way to
// wait.
#pragma once

#include <cstddef>

#include "sm90/params.hpp"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/memory.cuh"

namespace megamoe::sm90 {

struct Context {
  const KernelParams& params;
  std::uint32_t shared;  ///< address of the dynamic shared memory

  __device__ __forceinline__ SharedFront& front() const { return *in_shared<SharedFront>(0); }
  __device__ __forceinline__ CallView& call() const { return front().call; }

  template <class T>
  __device__ T* region(GpuRegion id, std::int64_t bank = 0) const {
    const int i = static_cast<int>(id);
    return reinterpret_cast<T*>(params.arena + params.region_offset[i] +
                                bank * params.bank_bytes[i]);
  }
  /// The same place in another rank's arena.
  template <class T>
  __device__ T* map(T* pointer, int rank) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(pointer) + params.peer_offset[rank]);
  }
  /// Shared memory at an offset of SharedLayout, as a generic pointer.
  template <class T>
  __device__ T* in_shared(std::int32_t offset) const {
    extern __shared__ __align__(1024) std::byte shared_bytes[];
    return reinterpret_cast<T*>(shared_bytes + offset);
  }

  __device__ std::uint32_t full(int stage) const {
    return shared + offsetof(SharedFront, full) + stage * 8;
  }
  __device__ std::uint32_t empty(int stage) const {
    return shared + offsetof(SharedFront, empty) + stage * 8;
  }

  /// Whether some role of this block has given the call up. Once true, always true.
  __device__ bool left() const { return *static_cast<volatile std::uint32_t*>(&front().left) != 0; }
  __device__ void leave() const { *static_cast<volatile std::uint32_t*>(&front().left) = 1; }
};

/// Reads the call's number and tokens into shared memory. One thread.
__device__ __forceinline__ void read_call(const Context& c) {
  const KernelParams& p = c.params;
  const auto* state = reinterpret_cast<const CallState*>(
      p.arena + p.region_offset[static_cast<int>(GpuRegion::call_state)]);
  const std::uint32_t number = __ldcg(&state->call) + 1;
  const std::int32_t tokens = p.tokens_word != nullptr ? __ldcg(p.tokens_word) : p.tokens;
  c.call() = {number, number & 1u, min(tokens, p.max_tokens)};
}

/// Waits inside the block: returns when the phase is over, or when the block has left; then nothing
/// that was waited for may be believed.
__device__ __forceinline__ void wait_or_leave(const Context& c, std::uint32_t barrier,
                                              std::uint32_t parity) {
  ptx::barrier_wait(barrier, parity, c.shared + offsetof(SharedFront, left));
}

/// What is waited for, for the fault record.
struct WaitName {
  WaitSignal signal;
  std::uint32_t index;
};

/// Keeps the group's first fault and tells every rank. Any thread, any number of times.
__device__ inline void raise_fault(const Context& c, const WaitName& name, std::uint64_t seen,
                                   std::uint64_t wanted) {
  FaultWords* mine = c.region<FaultWords>(GpuRegion::fault);
  DeviceFault* record = &c.map(mine, 0)->fault;
  if (atomicCAS_system(&record->claimed, 0u, 1u) == 0u) {
    record->signal = static_cast<std::uint32_t>(name.signal);
    record->rank = c.params.rank;
    record->index = name.index;
    record->seen = seen;
    record->wanted = wanted;
    ptx::store_release_sys(&record->complete, 1u);
  }
  for (int r = 0; r < c.params.ranks; ++r) {
    ptx::store_release_sys(&c.map(mine, r)->fault.abort, 1u);
  }
}

/// The slow half of a wait on memory: looks at the abort word and the clock now and then.
class Patience {
 public:
  /// `deadlines`: how many of the layer's deadlines this wait has.
  __device__ explicit Patience(int deadlines = 1) : deadlines_(deadlines) {}

  /// False when the wait must end: the group has a fault, or the deadline passed and this is it.
  __device__ bool step(const Context& c, const WaitName& name, std::uint64_t seen,
                       std::uint64_t wanted) {
    // A look at the clock and the abort word costs about as much as 32 polls of a cached line.
    if (++polls_ % 32 != 0) return true;
    const std::uint64_t now = ptx::global_nanoseconds();
    if (began_ == 0) began_ = now;
    const std::int64_t deadline = c.params.deadline_ns * deadlines_;
    if (deadline > 0 && now - began_ > static_cast<std::uint64_t>(deadline)) {
      raise_fault(c, name, seen, wanted);
    }
    const FaultWords* words = c.region<FaultWords>(GpuRegion::fault);
    if (!c.left() && ptx::load_relaxed_sys(&words->fault.abort) == 0) return true;
    c.leave();
    return false;
  }

 private:
  int deadlines_;
  std::uint32_t polls_ = 0;
  std::uint64_t began_ = 0;
};

/// Waits until a counter among this device's blocks reaches `wanted`. False: leave.
__device__ inline bool wait_for_count(const Context& c, const WaitName& name,
                                      const std::uint32_t* word, std::uint32_t wanted,
                                      int deadlines = 1) {
  Patience patience(deadlines);
  for (;;) {
    const std::uint32_t seen = ptx::load_acquire_gpu(word);
    if (seen >= wanted) return true;
    if (!patience.step(c, name, seen, wanted)) return false;
  }
}

/// Waits until rank `from` has arrived at a group barrier with this call. False: leave.
__device__ inline bool wait_for_rank(const Context& c, const WaitName& name, BarrierId barrier,
                                     int from) {
  const std::uint64_t* word = c.region<std::uint64_t>(GpuRegion::barrier) +
                              static_cast<int>(barrier) * c.params.ranks + from;
  const std::uint64_t wanted = std::uint64_t{c.params.layer} << 32 | c.call().number;
  Patience patience;
  for (;;) {
    const std::uint64_t seen = ptx::load_acquire_sys(word);
    if (seen == wanted) return true;
    // A peer may already be one barrier ahead, never more; its word then names a later call.
    const auto ahead =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(seen) - c.call().number);
    if (seen != 0 && ahead > 0) return true;
    if (seen != 0 && ahead == 0) {
      raise_fault(c, {WaitSignal::barrier_a_layer, static_cast<std::uint32_t>(from)}, seen, wanted);
    }
    if (!patience.step(c, name, seen, wanted)) return false;
  }
}

/// Arrives at a group barrier at every rank. One thread, after everything that must be visible.
__device__ inline void arrive_at_ranks(const Context& c, BarrierId barrier) {
  std::uint64_t* word = c.region<std::uint64_t>(GpuRegion::barrier) +
                        static_cast<int>(barrier) * c.params.ranks + c.params.rank;
  const std::uint64_t value = std::uint64_t{c.params.layer} << 32 | c.call().number;
  for (int r = 0; r < c.params.ranks; ++r) ptx::store_release_sys(c.map(word, r), value);
}

/// Place in the ring of stages.
struct PipelinePlace {
  std::int32_t stage = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void advance(std::int32_t stages) {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// Place in the ring of tasks.
struct TaskPlace {
  std::uint32_t slot = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    slot = (slot + 1) % kTaskRing;
    if (slot == 0) phase ^= 1;
  }
};

/// The value of lane 0, which all lanes have anyway: tells the compiler that branches on it do not
/// diverge, without which it serialises wgmma.
__device__ __forceinline__ std::int32_t uniform(std::int32_t value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

/// The thread's index, read anew: a copy that lives through the main loop costs it a register.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

/// The block's index, read anew for the same reason.
__device__ __forceinline__ int block_index() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

/// What a task is, told at compile time where the kernel does one kind only.
template <KernelPart P>
__device__ __forceinline__ bool is_gemm1(bool kind_is_gemm1) {
  if constexpr (P == KernelPart::fused) return kind_is_gemm1;
  return P == KernelPart::k1;
}

/// Waits for the next task of the block; any threads. It then stands at task_at() until
/// release_task(), once per warp.
__device__ __forceinline__ void wait_for_task(const Context& c, const TaskPlace& place) {
  const std::uint32_t barrier = c.shared + offsetof(SharedFront, task_full) + place.slot * 8;
  // The weights loader always ends the ring, also when it leaves: this wait needs no way out.
  while (!ptx::barrier_try_wait(barrier, place.phase)) {
  }
}
__device__ __forceinline__ const volatile TaskSlot& task_at(const Context& c,
                                                            const TaskPlace& place) {
  return c.front().tasks[place.slot];
}
__device__ __forceinline__ void release_task(const Context& c, const TaskPlace& place) {
  ptx::barrier_arrive(c.shared + offsetof(SharedFront, task_empty) + place.slot * 8);
}

}  // namespace megamoe::sm90
