// Count, scatter, barrier A: every thread of every block, before the roles part. In the split K1
// does so, and K2 begins when K1 has passed barrier A.
#pragma once

#include "routing/placement.hpp"
#include "routing/slots.hpp"
#include "sm90/context.cuh"

namespace megamoe::sm90 {

/// Routes of this rank's tokens, dealt to the threads of the grid. f(expert, route) for each, where
/// route = token * K + slot; g(token, slot, id) for each id beyond the experts.
template <class Route, class Bad>
__device__ __forceinline__ void for_each_route(const Context& c, Route&& f, Bad&& g) {
  const KernelParams& p = c.params;
  const std::int64_t* ids = c.region<std::int64_t>(GpuRegion::expert_ids);
  const std::int64_t slots = std::int64_t{c.call().tokens} * p.top_k;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{block_index()} * blockDim.x + threadIdx.x; i < slots;
       i += stride) {
    const std::int64_t token = i / p.top_k;
    const std::int64_t slot = i % p.top_k;
    const SlotList list{ids + token * p.top_k, nullptr, p.top_k, p.experts};
    if (list.ids[slot] >= p.experts) g(token, slot, list.ids[slot]);
    if (is_route(list, slot)) f(static_cast<int>(list.ids[slot]), i);
  }
}

/// The first bad id is kept for the host; its route is absent and combine makes the token NaN.
__device__ inline void record_bad_id(const Context& c, std::int64_t token, std::int64_t slot,
                                     std::int64_t value) {
  BadId* bad = &c.region<FaultWords>(GpuRegion::fault)->bad_id;
  if (atomicCAS(&bad->claimed, 0u, 1u) != 0u) return;
  bad->token = static_cast<std::int32_t>(token);
  bad->slot = static_cast<std::int32_t>(slot);
  bad->value = value;
  ptx::store_release_sys(&bad->complete, 1u);
}

/// Counts privately, reserves a private range of each expert's list with one atomic, and writes the
/// routes into the lists of the owners. `histogram` and `base`: u32 [experts] in shared memory.
__device__ inline void count_and_scatter(const Context& c, std::uint32_t* histogram,
                                         std::uint32_t* base) {
  const KernelParams& p = c.params;
  std::uint32_t* send_count = c.region<std::uint32_t>(GpuRegion::send_count, c.call().bank);
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) histogram[e] = 0;
  __syncthreads();
  for_each_route(
      c, [&](int expert, std::int64_t) { atomicAdd(&histogram[expert], 1u); },
      [&](std::int64_t t, std::int64_t s, std::int64_t v) { record_bad_id(c, t, s, v); });
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    if (histogram[e] > 0) {
      base[e] = ptx::fetch_add_relaxed_gpu(&send_count[e], histogram[e]);
      histogram[e] = 0;
    }
  }
  __syncthreads();
  std::uint32_t* lists = c.region<std::uint32_t>(GpuRegion::source_list);
  for_each_route(
      c,
      [&](int expert, std::int64_t route) {
        const std::uint32_t position = base[expert] + atomicAdd(&histogram[expert], 1u);
        const int owner = expert / p.experts_per_rank;
        const std::int64_t local = expert % p.experts_per_rank;
        std::uint32_t* list = lists + (local * p.ranks + p.rank) * p.max_tokens;
        c.map(list, owner)[position] = static_cast<std::uint32_t>(route);
      },
      [](std::int64_t, std::int64_t, std::int64_t) {});
}

/// Block 0: once all blocks have scattered, tells every owner how many routes come from here, and
/// arrives at barrier A.
__device__ inline void publish_counts(const Context& c) {
  const KernelParams& p = c.params;
  const GridCounters* grid = c.region<GridCounters>(GpuRegion::grid, c.call().bank);
  if (threadIdx.x == 0) {
    wait_for_count(c, {WaitSignal::scatter_of_blocks, 0}, &grid->scattered, gridDim.x);
  }
  __syncthreads();
  if (c.left()) return;
  const std::uint32_t* send_count = c.region<std::uint32_t>(GpuRegion::send_count, c.call().bank);
  std::uint32_t* receive = c.region<std::uint32_t>(GpuRegion::receive_count);
  for (int e = threadIdx.x; e < p.experts_per_rank * p.ranks; e += blockDim.x) {
    const std::uint32_t count = e < p.experts ? __ldcg(&send_count[e]) : 0u;
    c.map(receive + p.rank * p.experts_per_rank + e % p.experts_per_rank,
          e / p.experts_per_rank)[0] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    arrive_at_ranks(c, BarrierId::a);
  }
}

/// Rows of a pool expert, from the counts of all ranks. A shared expert has this rank's own tokens.
__device__ __forceinline__ int rows_of(const Context& c, const std::uint32_t* counts, int expert) {
  const KernelParams& p = c.params;
  if (expert >= p.experts_per_rank) return c.call().tokens;
  int rows = 0;
  for (int r = 0; r < p.ranks; ++r) {
    rows += static_cast<int>(counts[r * p.experts_per_rank + expert]);
  }
  return rows;
}

/// Blocks and rows before each pool expert. Shared memory; all threads.
__device__ inline void fill_expert_table(const Context& c, int block_rows) {
  const KernelParams& p = c.params;
  const std::uint32_t* receive = c.region<std::uint32_t>(GpuRegion::receive_count);
  std::uint32_t* counts = c.in_shared<std::uint32_t>(p.shared.counts);
  for (int i = threadIdx.x; i < p.ranks * p.experts_per_rank; i += blockDim.x) {
    counts[i] = __ldcg(&receive[i]);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  // One warp: 32 experts at a time, a scan by shuffles.
  std::int64_t* first_block = c.in_shared<std::int64_t>(p.shared.first_block);
  std::int32_t* first_row = c.in_shared<std::int32_t>(p.shared.first_row);
  const int lane = threadIdx.x;
  int blocks_before = 0;
  int rows_before = 0;
  for (int begin = 0; begin < p.pool_experts(); begin += 32) {
    const int e = begin + lane;
    const int rows = e < p.pool_experts() ? rows_of(c, counts, e) : 0;
    int blocks_to = (rows + block_rows - 1) / block_rows;
    int rows_to = rows;
    for (int d = 1; d < 32; d *= 2) {
      const int b = __shfl_up_sync(0xffffffffu, blocks_to, d);
      const int r = __shfl_up_sync(0xffffffffu, rows_to, d);
      if (lane >= d) {
        blocks_to += b;
        rows_to += r;
      }
    }
    if (e < p.pool_experts()) {
      first_block[e + 1] = blocks_before + blocks_to;
      first_row[e + 1] = rows_before + rows_to;
    }
    blocks_before += __shfl_sync(0xffffffffu, blocks_to, 31);
    rows_before += __shfl_sync(0xffffffffu, rows_to, 31);
  }
  if (lane == 0) {
    first_block[0] = 0;
    first_row[0] = 0;
  }
}

/// Zeroes the counters of the next call: nobody uses them between barriers A and B.
__device__ inline void clear_other_bank(const Context& c) {
  const std::uint32_t other = c.call().bank ^ 1u;
  const int begin = block_index() * blockDim.x + threadIdx.x;
  const int stride = gridDim.x * blockDim.x;
  const auto clear = [&](GpuRegion id) {
    std::uint32_t* words = c.region<std::uint32_t>(id, other);
    const std::int64_t count = c.params.bank_bytes[static_cast<int>(id)] / 4;
    for (std::int64_t i = begin; i < count; i += stride) words[i] = 0;
  };
  clear(GpuRegion::grid);
  clear(GpuRegion::send_count);
  clear(GpuRegion::block_arrival);
  clear(GpuRegion::block_readiness);
}

/// K1: K2 may begin.
__device__ inline void open_k2(const Context& c) {
  if (block_index() != 0 || threadIdx.x != 0) return;
  // Every thread of this block has acquired its rank's barrier word, and the block has met since.
  ptx::add_release_gpu(&c.region<GridCounters>(GpuRegion::grid, c.call().bank)->open, 1u);
}

/// K2, all threads: waits for K1; afterwards the expert table stands in shared memory. What K1
/// waits for has a deadline of its own, which is told better by K1: this wait is twice as patient.
/// The block has left if it returns false.
__device__ inline bool follow_k1(const Context& c, int block_rows) {
  if (threadIdx.x == 0) {
    const GridCounters* grid = c.region<GridCounters>(GpuRegion::grid, c.call().bank);
    wait_for_count(c, {WaitSignal::k1_open, 0}, &grid->open, 1u, 2);
  }
  __syncthreads();
  if (c.left()) return false;
  fill_expert_table(c, block_rows);
  return true;
}

/// All threads; afterwards the expert table stands in shared memory and every rank's x may be read.
/// The block has left if it returns false.
__device__ inline bool count_phase(const Context& c, int block_rows) {
  const KernelParams& p = c.params;
  std::uint32_t* histogram = c.in_shared<std::uint32_t>(p.shared.tokens);
  count_and_scatter(c, histogram, histogram + p.experts);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    GridCounters* grid = c.region<GridCounters>(GpuRegion::grid, c.call().bank);
    ptx::add_release_gpu(&grid->scattered, 1u);
  }
  if (block_index() == 0) publish_counts(c);
  if (static_cast<int>(threadIdx.x) < p.ranks) {
    wait_for_rank(c, {WaitSignal::barrier_a, threadIdx.x}, BarrierId::a,
                  static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  if (c.left()) return false;
  fill_expert_table(c, block_rows);
  clear_other_bank(c);
  return true;
}

}  // namespace megamoe::sm90
