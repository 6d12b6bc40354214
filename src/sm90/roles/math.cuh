// The math warpgroups: tasks from the ring, a slab each, then the epilogue.
#pragma once

#include "sm90/roles/epilogues.cuh"

namespace megamoe::sm90 {

/// The tile's place for this thread. `slab`: of 64 rows, counted from the task's first.
template <KernelShape S>
__device__ __forceinline__ TilePlace tile_place(const Context& c, const TaskPlace& ring, int slab) {
  const ThreadPlace at = ThreadPlace::here();
  const volatile TaskSlot& task = task_at(c, ring);
  const std::int64_t rows = task.kind == kTaskGemm1
                                ? (std::int64_t{task.expert} * c.params.groups + task.part) * 256
                                : std::int64_t{task.expert} * c.params.row_tiles2 * kTileRows +
                                      std::int64_t{task.part} * S.rows();
  return {task.block, task.part, task.valid, rows + slab * kSlabRows + at.warp * 16 + at.row};
}

/// What the epilogue of a tile will need comes into this warpgroup's shared memory while the main
/// loop runs: the row factors of its slab and, with a task's first tile, the row targets of the
/// block. Complete after finish_fetches().
template <KernelShape S>
__device__ __forceinline__ void fetch_targets(const Context& c, int block) {
  const ThreadPlace at = ThreadPlace::here();
  const RowTarget* from =
      c.region<RowTarget>(GpuRegion::row_target) + std::int64_t{block} * S.tokens;
  const std::uint32_t to = targets_of<S>(c, at.group);
  for (int t = at.warp * 32 + at.lane; t < S.tokens; t += kWarpgroup) {
    ptx::async_copy_16(to + t * sizeof(RowTarget), from + t);
  }
}
__device__ __forceinline__ void fetch_factors(const Context& c, const float* row_factors,
                                              const TilePlace& tile) {
  const ThreadPlace at = ThreadPlace::here();
  if (at.pair != 0 || at.row % 4 != 0) return;
  // The first of each four rows; its own and, eight on, its second.
  ptx::async_copy_16(factor_of(c), row_factors + tile.factor_row);
  ptx::async_copy_16(factor_of(c) + 32, row_factors + tile.factor_row + 8);
}
__device__ __forceinline__ void finish_fetches() {
  ptx::wait_async_copies();
  ptx::named_barrier(kGroupBarrier + ThreadPlace::here().group, kWarpgroup);
}

template <KernelShape S>
__device__ __forceinline__ void gemm1_task(const Context& c, PipelinePlace& place,
                                           const TaskPlace& ring) {
#pragma unroll 1
  for (int t = 0; t < S.gemm1_tiles(); ++t) {
    const int group = ThreadPlace::here().group;
    const int slab = t * S.math_groups + group;
    // The rows of a task have all arrived once its first stage is full.
    wait_or_leave(c, c.full(place.stage), place.phase);
    if (t == 0) fetch_targets<S>(c, task_at(c, ring).block);
    fetch_factors(c, c.params.w1.row_factors, tile_place<S>(c, ring, slab));
    float sum[S.tokens / 2];
    multiply_slab<S, S.gemm1_interval_blocks()>(c, place, c.params.k_blocks1(), sum);
    finish_fetches();
    const TilePlace tile = tile_place<S>(c, ring, slab);
    float values[S.tokens / 4];
    activate_tile<S>(c, tile, sum, values);
    add_maxima<S>(c, values);
    if (t + 1 < S.gemm1_tiles()) {
      keep_values<S>(c, values);
      // All have read the factors: the next tile's may come.
      ptx::named_barrier(kGroupBarrier + group, kWarpgroup);
      continue;
    }
    finish_maxima<S>(c, tile);
    store_activations<S>(c, tile, slab, values);
    if (S.gemm1_tiles() == 2) {
      fetch_values<S>(c, values);
      store_activations<S>(c, tile, group, values);
    }
    release_readiness(c, tile);
  }
}

template <KernelShape S>
__device__ __forceinline__ void gemm2_task(const Context& c, PipelinePlace& place,
                                           const TaskPlace& ring) {
  const int group = ThreadPlace::here().group;
  wait_or_leave(c, c.full(place.stage), place.phase);
  fetch_targets<S>(c, task_at(c, ring).block);
  fetch_factors(c, c.params.w2.row_factors, tile_place<S>(c, ring, group));
  float sum[S.tokens / 2];
  multiply_slab<S, 1>(c, place, c.params.groups, sum);
  finish_fetches();
  push_tile<S>(c, tile_place<S>(c, ring, group), sum);
}

/// GEMM 1 ends with all warpgroups in step. Half of them then start GEMM 2 so much later, about
/// three k blocks, and keep the distance from tile to tile: while one pushes its results, the other
/// has the tensor cores.
inline constexpr unsigned kLagNanoseconds = 1500;

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void math_role(const Context& c) {
  TaskPlace ring;
  PipelinePlace place;
  // Told by a shuffle, so that the compiler sees that warps do not diverge here.
  const bool late = uniform(ThreadPlace::here().group) % 2 == 1;
  // K2 begins as the fused kernel does after GEMM 1.
  int before = P == KernelPart::k2 ? kTaskGemm1 : kTaskEnd;
  for (;;) {
    wait_for_task(c, ring);
    const int kind = uniform(task_at(c, ring).kind);
    if (kind == kTaskEnd) return;
    // The group is done with the targets of its last task.
    ptx::named_barrier(kGroupBarrier + ThreadPlace::here().group, kWarpgroup);
    const bool gemm1 = is_gemm1<P>(kind == kTaskGemm1);
    if (!gemm1 && before == kTaskGemm1 && late && S.math_groups == 2) __nanosleep(kLagNanoseconds);
    before = kind;
    if (gemm1) {
      gemm1_task<S>(c, place, ring);
    } else {
      gemm2_task<S>(c, place, ring);
    }
    __syncwarp();
    if (thread_index() % 32 == 0) release_task(c, ring);
    ring.advance();
  }
}

}  // namespace megamoe::sm90
