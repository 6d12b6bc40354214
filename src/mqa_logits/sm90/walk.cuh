// Which keys a block of rows sees, and which tiles a thread block computes: all tiles of all row
// blocks stand in one line, each block after a gap for what entering it costs, and every thread
// block takes an equal part of the line. So causal ranges, ragged contexts and few rows with many
// keys all keep the whole device busy.
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

/// What a row block costs, in tiles: entering it takes some time too.
template <KernelShape S>
__device__ __forceinline__ int cost_of(int tiles) {
  return tiles == 0 ? 0 : tiles + S.entry_cost();
}

/// One thread alone. All loads are in flight before the first is needed.
template <KernelShape S>
__device__ __forceinline__ int count_cost(const Params& p, int block) {
  const RowSpan rows = rows_of_block<S>(p, block);
  int begin = INT_MAX;
  int end = 0;
#pragma unroll
  for (int r = 0; r < S.block_rows(); ++r) {
    // The last row stands in for those that are not there.
    const KeyRange range = range_of_row(p, rows.first + min(r, rows.count - 1));
    const bool some = range.begin < range.end;
    begin = min(begin, some ? static_cast<int>(range.begin) : INT_MAX);
    end = max(end, static_cast<int>(range.end));
  }
  return cost_of<S>(tiles_of(begin, end).tiles);
}

/// The part of [0, total) that this thread block takes.
__device__ __forceinline__ Share share_of_block(std::int64_t total) {
  return share_of(total, blockIdx.x, gridDim.x);
}

/// All threads: finds where this thread block's part begins. Each thread counts a run of row
/// blocks.
template <KernelShape S>
__device__ __forceinline__ void find_share(const Params& p, SharedMemory<S>& shared) {
  if (p.block_table == nullptr && p.begins == nullptr && p.ends == nullptr) {
    const int cost = cost_of<S>(tiles_of(0, p.columns).tiles);
    const Share share = share_of_block(std::int64_t{cost} * p.row_blocks);
    if (threadIdx.x == 0) {
      shared.walk = {share.end - share.begin, static_cast<int>(share.begin / cost),
                     static_cast<int>(share.begin % cost)};
    }
    __syncthreads();
    return;
  }
  const int thread = threadIdx.x;
  const Share mine = share_of(p.row_blocks, thread, S.threads());
  std::int64_t own = 0;
  for (auto b = mine.begin; b < mine.end; ++b) own += count_cost<S>(p, static_cast<int>(b));
  std::int64_t before = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::int64_t other = __shfl_up_sync(~0u, before, step);
    if (thread % 32 >= step) before += other;
  }
  if (thread % 32 == 31) shared.warp_sums[thread / 32] = before;
  if (thread == 0) shared.walk = {0, 0, 0};
  __syncthreads();
  std::int64_t total = 0;
  before -= own;
  for (int w = 0; w < S.threads() / 32; ++w) {
    if (w < thread / 32) before += shared.warp_sums[w];
    total += shared.warp_sums[w];
  }
  const Share share = share_of_block(total);
  // The one thread in whose run the part begins.
  if (share.begin < share.end && share.begin >= before && share.begin < before + own) {
    auto b = mine.begin;
    std::int64_t offset = share.begin - before;
    for (;; ++b) {
      const int cost = count_cost<S>(p, static_cast<int>(b));
      if (offset < cost) break;
      offset -= cost;
    }
    shared.walk = {share.end - share.begin, static_cast<int>(b), static_cast<int>(offset)};
  }
  __syncthreads();
}

/// A segment: the tiles that a thread block has of one row block.
struct WalkStep {
  RowSpan rows;
  KeyRange range;  ///< of the lane's row; empty where there is none
  int first_key;
  int tiles;  ///< 0: the end
};

/// The next segment. All lanes of a warp.
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
    const auto part =
        static_cast<int>(min64(walk.left, max64(cost_of<S>(span.tiles) - walk.offset, 0)));
    const int first = max(walk.offset - S.entry_cost(), 0);
    const int last = max(walk.offset + part - S.entry_cost(), 0);
    walk = {walk.left - part, walk.block + 1, 0};
    if (first >= last) continue;
    step.first_key = span.first_key + first * kStageKeys;
    step.tiles = last - first;
    return step;
  }
  return step;
}

}  // namespace megamoe::mqa
