// Which keys a block of rows sees, and which tiles a thread block computes: all tiles of all row
// blocks stand in one line, and every thread block takes an equal part of it. So causal ranges,
// ragged contexts and few rows with many keys all keep the whole device busy.
#pragma once

#include <climits>

#include "mqa_logits/arguments.hpp"
#include "mqa_logits/sm90/params.hpp"
#include "mqa_logits/sm90/ptx.cuh"

namespace megamoe::mqa {

struct RowSpan {
  int first;
  int count;
};

template <KernelShape S>
__device__ __forceinline__ RowSpan rows_of_block(const Params& p, int block) {
  if (p.block_table == nullptr) {
    const int first = block * S.block_rows();
    return {first, min(S.block_rows(), p.rows - first)};
  }
  const int token = block % p.sequence_blocks * S.block_rows();
  return {block / p.sequence_blocks * p.next_n + token, min(S.block_rows(), p.next_n - token)};
}

__device__ __forceinline__ KeyRange range_of_row(const Params& p, int row) {
  if (p.block_table == nullptr) return range_of(p.begins, p.ends, row, p.columns);
  return context_of(p.contexts, p.lengths, row / p.next_n, row % p.next_n, p.next_n, p.columns);
}

struct TileSpan {
  int first_key;
  int tiles;
};
/// Of the union [begin, end) of the rows' ranges. Tiles begin where 32-byte sectors of the logits
/// do, if rows do.
__device__ __forceinline__ TileSpan tiles_of(int begin, int end) {
  if (begin >= end) return {0, 0};
  const int first = begin / 32 * 32;
  return {first, static_cast<int>(ceil_div(std::int64_t{end} - first, kStageKeys))};
}

/// One thread alone.
template <KernelShape S>
__device__ __forceinline__ int count_tiles(const Params& p, int block) {
  const RowSpan rows = rows_of_block<S>(p, block);
  int begin = INT_MAX;
  int end = 0;
  for (int r = 0; r < rows.count; ++r) {
    const KeyRange range = range_of_row(p, rows.first + r);
    if (range.begin == range.end) continue;
    begin = min(begin, static_cast<int>(range.begin));
    end = max(end, static_cast<int>(range.end));
  }
  return tiles_of(begin, end).tiles;
}

/// The part of [0, total) that this thread block takes.
__device__ __forceinline__ Share share_of_block(std::int64_t total) {
  return share_of(total, blockIdx.x, gridDim.x);
}

/// All threads: finds this thread block's first tile. Each thread counts a run of row blocks.
template <KernelShape S>
__device__ __forceinline__ void find_share(const Params& p, SharedMemory<S>& shared) {
  if (p.block_table == nullptr && p.begins == nullptr && p.ends == nullptr) {
    const int tiles = tiles_of(0, p.columns).tiles;
    const Share share = share_of_block(std::int64_t{tiles} * p.row_blocks);
    if (threadIdx.x == 0) {
      shared.tiles = share.end - share.begin;
      shared.first_block = static_cast<int>(share.begin / tiles);
      shared.first_tile = share.begin % tiles;
    }
    __syncthreads();
    return;
  }
  const int thread = threadIdx.x;
  const Share mine = share_of(p.row_blocks, thread, kThreads);
  std::int64_t own = 0;
  for (auto b = mine.begin; b < mine.end; ++b) own += count_tiles<S>(p, static_cast<int>(b));
  std::int64_t before = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::int64_t other = __shfl_up_sync(~0u, before, step);
    if (thread % 32 >= step) before += other;
  }
  if (thread % 32 == 31) shared.warp_sums[thread / 32] = before;
  if (thread == 0) shared.tiles = 0;
  __syncthreads();
  std::int64_t total = 0;
  before -= own;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < thread / 32) before += shared.warp_sums[w];
    total += shared.warp_sums[w];
  }
  const Share share = share_of_block(total);
  // The one thread in whose run the share begins.
  if (share.begin < share.end && share.begin >= before && share.begin < before + own) {
    auto b = mine.begin;
    std::int64_t left = share.begin - before;
    for (;; ++b) {
      const int tiles = count_tiles<S>(p, static_cast<int>(b));
      if (left < tiles) break;
      left -= tiles;
    }
    shared.tiles = share.end - share.begin;
    shared.first_block = static_cast<int>(b);
    shared.first_tile = left;
  }
  __syncthreads();
}

/// A walk over the segments of a thread block: the tiles that it has of one row block. All lanes of
/// a warp.
struct Walk {
  std::int64_t left;  ///< tiles
  int block;
  int tile;  ///< of the block, the next

  template <KernelShape S>
  __device__ static Walk begin(const SharedMemory<S>& shared) {
    return {shared.tiles, shared.first_block, static_cast<int>(shared.first_tile)};
  }
};

struct WalkStep {
  RowSpan rows;
  KeyRange range;  ///< of the lane's row; empty where there is none
  int first_key;
  int tiles;  ///< 0: the end
};

template <KernelShape S>
__device__ __forceinline__ WalkStep next_step(const Params& p, Walk& walk) {
  WalkStep step{};
  const int lane = threadIdx.x % 32;
  while (walk.left > 0) {
    step.rows = rows_of_block<S>(p, walk.block);
    step.range = {0, 0};
    if (lane < step.rows.count) step.range = range_of_row(p, step.rows.first + lane);
    const bool some = step.range.begin < step.range.end;
    const int begin = __reduce_min_sync(~0u, some ? static_cast<int>(step.range.begin) : INT_MAX);
    const int end = __reduce_max_sync(~0u, static_cast<int>(step.range.end));
    const TileSpan span = tiles_of(begin, end);
    if (walk.tile < span.tiles) {
      step.first_key = span.first_key + walk.tile * kStageKeys;
      step.tiles = static_cast<int>(min64(walk.left, span.tiles - walk.tile));
      walk.left -= step.tiles;
      ++walk.block;
      walk.tile = 0;
      return step;
    }
    ++walk.block;
    walk.tile = 0;
  }
  return step;
}

}  // namespace megamoe::mqa
