// The two loaders of a block, one lane each. The weights loader takes tasks in the order of their
// tickets and hands them on; neither it nor its copies wait for tokens. The tokens loader waits for
// the rows of each task.
#pragma once

#include "schedule/walk.hpp"
#include "sm90/context.cuh"

namespace megamoe::sm90 {

template <KernelShape S>
constexpr std::int64_t gemm2_parts(const KernelParams& p) {
  return ceil_div(p.row_tiles2, S.weight_tiles());
}

/// Hands a task to the other roles of the block. They empty the ring also when the block leaves, so
/// this wait needs no way out.
__device__ __forceinline__ void push_task(const Context& c, TaskPlace& place,
                                          const TaskSlot& task) {
  const std::uint32_t empty = c.shared + offsetof(SharedFront, task_empty) + place.slot * 8;
  while (!ptx::barrier_try_wait(empty, place.phase ^ 1)) {
  }
  c.front().tasks[place.slot] = task;
  ptx::barrier_arrive(c.shared + offsetof(SharedFront, task_full) + place.slot * 8);
  place.advance();
}

/// The weight tiles of one row range, all column tiles in order, a stage each.
template <KernelShape S>
__device__ __forceinline__ void load_weight_rows(const Context& c, PipelinePlace& place,
                                                 const std::byte* first_tile,
                                                 const PackedMatrix& matrix, int row_tiles) {
  constexpr int kTileBytes = S.weight_tile_bytes();
  const std::int64_t row_bytes = matrix.column_tiles() * kTileBytes;
#pragma unroll 1
  for (std::int64_t k = 0; k < matrix.column_tiles(); ++k) {
    wait_or_leave(c, c.empty(place.stage), place.phase ^ 1);
    if (c.left()) return;
    const std::uint32_t full = c.full(place.stage);
    const std::uint32_t to =
        c.shared + c.params.shared.weights + place.stage * S.weight_stage_bytes();
    ptx::barrier_arrive_expect(full, row_tiles * kTileBytes);
    for (int t = 0; t < row_tiles; ++t) {
      ptx::bulk_load(to + t * kTileBytes, first_tile + t * row_bytes + k * kTileBytes, kTileBytes,
                     full);
    }
    place.advance(c.params.shared.stages);
  }
}

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void load_weights(const Context& c, PipelinePlace& place,
                                             const Task& task) {
  const KernelParams& p = c.params;
  if (is_gemm1<P>(task.kind == TaskKind::gemm1)) {
    const PackedMatrix matrix{p.groups * 256, p.k_blocks1() * kTileColumns, S.weight_tile_bytes()};
    const std::byte* tiles = p.w1.tiles + task.expert * matrix.bytes();
#pragma unroll 1
    for (int t = 0; t < S.gemm1_tiles(); ++t) {
      const std::int64_t row_tile = task.part * 2 + t * S.weight_tiles();
      load_weight_rows<S>(c, place, tiles + matrix.tile_offset(row_tile, 0), matrix,
                          S.weight_tiles());
    }
  } else {
    const PackedMatrix matrix{std::int64_t{p.row_tiles2} * kTileRows,
                              std::int64_t{p.groups} * kIntermediateGroup, S.weight_tile_bytes()};
    const std::byte* tiles = p.w2.tiles + task.expert * matrix.bytes();
    load_weight_rows<S>(c, place, tiles + matrix.tile_offset(task.part * S.weight_tiles(), 0),
                        matrix, S.weight_tiles());
  }
}

/// Copies that the loaders started read local memory and end within microseconds; a block that
/// leaves keeps its shared memory for a thousand times as long.
__device__ __forceinline__ void outlive_copies() {
  __nanosleep(1000000);
}

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void weights_loader_role(const Context& c) {
  const KernelParams& p = c.params;
  const std::int64_t* first_block = c.in_shared<std::int64_t>(p.shared.first_block);
  const std::int32_t* first_row = c.in_shared<std::int32_t>(p.shared.first_row);
  GridCounters* grid = c.region<GridCounters>(GpuRegion::grid, c.call().bank);
  std::uint32_t* tickets = P == KernelPart::k2 ? &grid->ticket2 : &grid->ticket;
  Walk& walk = *new (c.front().walk) Walk(first_block, p.pool_experts(),
                                          {.pull_parts = 0,
                                           .gemm1_parts = p.groups,
                                           .gemm2_parts = gemm2_parts<S>(p),
                                           .experts_per_wave = p.experts_per_wave},
                                          task_set(P));
  const std::int64_t tasks = walk.size();
  TaskPlace ring;
  PipelinePlace place;
  std::int64_t ticket = block_index();
  while (ticket < tasks && !c.left()) {
    const Task task = walk.at(ticket);
    // Asked for now, needed after this task's copies: its latency is hidden.
    ticket = gridDim.x + ptx::fetch_add_relaxed_gpu(tickets, 1u);
    const int expert = static_cast<int>(task.expert);
    const int rows = first_row[expert + 1] - first_row[expert];
    const int before = static_cast<int>(task.block - first_block[expert]) * S.tokens;
    push_task(c, ring,
              {task.kind == TaskKind::gemm1 ? kTaskGemm1 : kTaskGemm2, expert,
               static_cast<int>(task.block), static_cast<int>(task.part),
               rows - before < S.tokens ? rows - before : S.tokens});
    load_weights<S, P>(c, place, task);
  }
  push_task(c, ring, {kTaskEnd, 0, 0, 0, 0});
  if (c.left()) outlive_copies();
}

/// What a GEMM reads of its tokens.
struct TokenSource {
  const std::byte* tiles;  ///< of the block, one for each 128 columns
  const float* scales;     ///< of the block, one row of N for each interval
  int k_blocks;
  int interval;  ///< k blocks that share a scale
};

/// The tokens of a block, all columns in order, a stage each; each interval's scales come with its
/// last k block. Rows beyond the valid ones are left as they are: they reach no result.
template <KernelShape S>
__device__ __forceinline__ void load_tokens(const Context& c, PipelinePlace& place,
                                            const TokenSource& from, int valid) {
  const std::uint32_t rows = (valid + 7) / 8 * 8;
  const std::uint32_t scale_bytes = (valid + 15) / 16 * 16 * 4;
#pragma unroll 1
  for (int k = 0; k < from.k_blocks; ++k) {
    wait_or_leave(c, c.empty(place.stage), place.phase ^ 1);
    if (c.left()) return;
    const std::uint32_t full = c.full(place.stage);
    const bool last = (k + 1) % from.interval == 0 || k + 1 == from.k_blocks;
    ptx::barrier_arrive_expect(full, rows * kTileColumns + (last ? scale_bytes : 0));
    ptx::bulk_load(c.shared + c.params.shared.tokens + place.stage * S.token_bytes(),
                   from.tiles + std::int64_t{k} * S.token_bytes(), rows * kTileColumns, full);
    if (last) {
      ptx::bulk_load(c.shared + c.params.shared.weights + place.stage * S.weight_stage_bytes() +
                         S.weight_bytes(),
                     from.scales + std::int64_t{k / from.interval} * S.tokens, scale_bytes, full);
    }
    place.advance(c.params.shared.stages);
  }
}

template <KernelShape S>
__device__ __forceinline__ bool load_gemm1_tokens(const Context& c, PipelinePlace& place,
                                                  const TaskSlot& task) {
  const KernelParams& p = c.params;
  const std::uint32_t* arrival =
      c.region<std::uint32_t>(GpuRegion::block_arrival, c.call().bank) + task.block;
  if (!wait_for_count(c, {WaitSignal::block_arrival, static_cast<std::uint32_t>(task.block)},
                      arrival, static_cast<std::uint32_t>(task.valid))) {
    return false;
  }
  ptx::fence_async_proxy();
  const int k_blocks = p.k_blocks1();
  constexpr int interval = S.gemm1_interval_blocks();
  const TokenSource from{c.region<std::byte>(GpuRegion::gemm1_input) +
                             std::int64_t{task.block} * k_blocks * S.token_bytes(),
                         c.region<float>(GpuRegion::gemm1_input_scales) +
                             std::int64_t{task.block} * ceil_div(k_blocks, interval) * S.tokens,
                         k_blocks, interval};
#pragma unroll 1
  for (int t = 0; t < S.gemm1_tiles(); ++t) load_tokens<S>(c, place, from, task.valid);
  return true;
}

template <KernelShape S>
__device__ __forceinline__ bool load_gemm2_tokens(const Context& c, PipelinePlace& place,
                                                  const TaskSlot& task) {
  const KernelParams& p = c.params;
  const std::uint32_t* readiness =
      c.region<std::uint32_t>(GpuRegion::block_readiness, c.call().bank) + task.block;
  const std::uint32_t wanted = p.groups * S.math_warps();
  if (!wait_for_count(c, {WaitSignal::block_readiness, static_cast<std::uint32_t>(task.block)},
                      readiness, wanted)) {
    return false;
  }
  ptx::fence_async_proxy();
  const std::int64_t block_groups = std::int64_t{task.block} * p.groups;
  load_tokens<S>(
      c, place,
      {c.region<std::byte>(GpuRegion::gemm2_input) + block_groups * S.token_bytes(),
       c.region<float>(GpuRegion::gemm2_input_scales) + block_groups * S.tokens, p.groups, 1},
      task.valid);
  return true;
}

template <KernelShape S, KernelPart P>
__device__ __forceinline__ void tokens_loader_role(const Context& c) {
  TaskPlace ring;
  PipelinePlace place;
  bool here = true;
  for (;;) {
    wait_for_task(c, ring);
    const volatile TaskSlot& slot = task_at(c, ring);
    const TaskSlot task{slot.kind, slot.expert, slot.block, slot.part, slot.valid};
    release_task(c, ring);
    ring.advance();
    if (task.kind == kTaskEnd) break;
    // After leaving it keeps emptying the ring, so that the weights loader can end it.
    if (!here) continue;
    here = is_gemm1<P>(task.kind == kTaskGemm1) ? load_gemm1_tokens<S>(c, place, task)
                                                : load_gemm2_tokens<S>(c, place, task);
  }
  if (c.left()) outlive_copies();
}

}  // namespace megamoe::sm90
