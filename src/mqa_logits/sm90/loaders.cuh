// The warps that feed the math: one streams tiles of keys, one or two prepare blocks of query rows.
#pragma once

#include "mqa_logits/sm90/scale_queries.cuh"
#include "mqa_logits/sm90/walk.cuh"

namespace megamoe::mqa {

/// A place in a ring of `kSlots`, and the parity of its full barrier.
template <int kSlots>
struct RingPlace {
  std::uint32_t count = 0;
  __device__ int slot() const { return static_cast<int>(count % kSlots); }
  __device__ std::uint32_t phase() const { return count / kSlots % 2; }
};

/// Keys from `key` on, 64, to half a stage.
struct HalfTile {
  int key;
  int block;  ///< paged: of the cache
};

template <KernelShape S>
__device__ __forceinline__ void load_half(const Params& p, SharedMemory<S>& shared, int stage,
                                          int half, const HalfTile& tile) {
  const std::uint32_t full = ptx::shared_address(&shared.kv_full[stage]);
  const std::uint32_t to = ptx::shared_address(&shared.kv[stage][half * S.half_bytes()]);
  const std::uint32_t scales = ptx::shared_address(&shared.scales[stage][half * kHalfKeys]);
  const bool paged = p.block_table != nullptr;
  const int key = paged ? 0 : tile.key;
  ptx::tensor_load(to, p.kv, 0, key, tile.block, full);
  ptx::tensor_load(scales, p.scales, key, tile.block, full);
}

/// One warp. Blocks of the table are read 32 at a time, a lane each.
template <KernelShape S>
__device__ __forceinline__ void keys_role(const Params& p, SharedMemory<S>& shared) {
  constexpr int kHalfBytes = S.half_bytes() + kHalfKeys * 4;
  const int lane = threadIdx.x % 32;
  RingPlace<S.stages()> place;
  Walk walk = shared.walk;
  for (WalkStep step = next_step<S>(p, walk); step.tiles > 0; step = next_step<S>(p, walk)) {
    // The last key that any row of the block sees.
    const int end = __reduce_max_sync(~0u, static_cast<int>(step.range.end));
    const std::int64_t sequence = p.block_table == nullptr ? 0 : step.rows.first / p.next_n;
    int table = 0;
    for (int t = 0; t < step.tiles; ++t, ++place.count) {
      const int first = step.first_key + t * kStageKeys;
      if (p.block_table != nullptr && t % 16 == 0) {
        const int entry = first / kHalfKeys + lane;
        const bool there = std::int64_t{entry} * kHalfKeys < end;
        table = there ? p.block_table[sequence * p.max_blocks + entry] : 0;
      }
      const int block[2] = {__shfl_sync(~0u, table, t % 16 * 2),
                            __shfl_sync(~0u, table, t % 16 * 2 + 1)};
      const int stage = place.slot();
      if (lane == 0) {
        ptx::wait(ptx::shared_address(&shared.kv_empty[stage]), place.phase() ^ 1);
        const bool both = first + kHalfKeys < end;
        ptx::barrier_arrive_expect(ptx::shared_address(&shared.kv_full[stage]),
                                   both ? 2 * kHalfBytes : kHalfBytes);
        load_half<S>(p, shared, stage, 0, {first, block[0]});
        if (both) load_half<S>(p, shared, stage, 1, {first + kHalfKeys, block[1]});
      }
      __syncwarp();
    }
  }
}

/// Of one logit, outside.
template <int kThreads, class T>
__device__ __forceinline__ void fill(T* begin, T* end, T value, std::uint32_t word, int thread) {
  // Up to the first 16-byte boundary, the middle by 16 bytes, the rest.
  constexpr int kPerStore = 16 / sizeof(T);
  auto address = reinterpret_cast<std::uintptr_t>(begin);
  T* aligned = reinterpret_cast<T*>((address + 15) / 16 * 16);
  if (aligned > end) aligned = end;
  const std::int64_t stores = (end - aligned) / kPerStore;
  for (T* at = begin + thread; at < aligned; at += kThreads) *at = value;
  auto* middle = reinterpret_cast<uint4*>(aligned);
  for (std::int64_t i = thread; i < stores; i += kThreads) {
    middle[i] = make_uint4(word, word, word, word);
  }
  for (T* at = aligned + stores * kPerStore + thread; at < end; at += kThreads) *at = value;
}

/// -infinity in the columns of a row that are outside its range.
template <int kThreads>
__device__ __forceinline__ void clean_row(const Params& p, int row, int thread) {
  const KeyRange range = range_of_row(p, row);
  const std::int64_t at = row * p.row_stride;
  if (p.format == MqaLogitFormat::f32) {
    auto* logits = static_cast<std::uint32_t*>(p.logits) + at;
    constexpr std::uint32_t kOutside = 0xFF80'0000u;
    fill<kThreads>(logits, logits + range.begin, kOutside, kOutside, thread);
    fill<kThreads>(logits + range.end, logits + p.columns, kOutside, kOutside, thread);
  } else {
    auto* logits = static_cast<std::uint16_t*>(p.logits) + at;
    constexpr std::uint16_t kOutside = 0xFF80u;
    fill<kThreads>(logits, logits + range.begin, kOutside, 0xFF80'FF80u, thread);
    fill<kThreads>(logits + range.end, logits + p.columns, kOutside, 0xFF80'FF80u, thread);
  }
}

/// The rows that this thread block cleans: every gridDim.x-th, whoever computes them.
template <int kThreads>
struct CleanRows {
  int next;
  __device__ __forceinline__ void some(const Params& p, int count, int thread) {
    if (p.outside == MqaOutside::unspecified) return;
    for (; count > 0 && next < p.rows; --count, next += gridDim.x)
      clean_row<kThreads>(p, next, thread);
  }
};

/// Starts the copy of the query rows, completing on `barrier` with one arrival.
template <KernelShape S>
__device__ __forceinline__ void load_queries(const Params& p, SharedMemory<S>& shared, int slot,
                                             const RowSpan& rows, std::uint32_t barrier) {
  const int groups = rows.count > S.group_rows() ? 2 : 1;
  ptx::barrier_arrive_expect(barrier, groups * S.group_bytes());
  for (int g = 0; g < groups; ++g) {
    ptx::tensor_load(ptx::shared_address(&shared.q[slot][g * S.group_bytes()]), p.q, 0, 0,
                     rows.first + g * S.group_rows(), barrier);
  }
}

/// One thread's part of the segment: the ranges of rows, and what the first lane adds.
template <KernelShape S>
__device__ __forceinline__ void write_segment(Segment& segment, const WalkStep& step) {
  const int lane = threadIdx.x % 32;
  if (lane < S.block_rows()) {
    segment.begins[lane] = static_cast<int>(step.range.begin);
    segment.ends[lane] = static_cast<int>(step.range.end);
  }
  if (lane == 0) {
    segment.tiles = step.tiles;
    segment.first_key = step.first_key;
    segment.first_row = step.rows.first;
    segment.groups = step.rows.count > S.group_rows() ? 2 : 1;
  }
}

/// Halves of the f32 weights of a row block, which meet twice the dot products, to shared memory;
/// zeros where there is none. Each thread its columns.
template <KernelShape S>
__device__ __forceinline__ void fetch_weights(const Params& p, SharedMemory<S>& shared,
                                              const RowSpan& rows, int thread) {
  const auto* weights = static_cast<const float*>(p.weights) + std::int64_t{rows.first} * p.heads;
#pragma unroll 4
  for (int column = thread; column < kBlockColumns; column += S.prepare_threads()) {
    const int row = column / S.heads;
    const int head = column % S.heads;
    const bool there = row < rows.count && head < p.heads;
    shared.scaled_weights[column] = there ? 0.5f * weights[row * p.heads + head] : 0.0f;
  }
}

/// One or two warps: q, weights and ranges of a row block into one of two slots, ahead of the math.
/// What memory is asked for one block is on its way while the block before it is used.
template <KernelShape S>
__device__ __forceinline__ void queries_role(const Params& p, SharedMemory<S>& shared) {
  const int thread = static_cast<int>(threadIdx.x) - (kMathWarps + 1) * 32;
  RingPlace<2> place;
  Walk walk = shared.walk;
  CleanRows<S.prepare_threads()> cleaning{static_cast<int>(blockIdx.x)};
  for (;; ++place.count) {
    const WalkStep step = next_step<S>(p, walk);
    if constexpr (!S.f16()) {
      if (step.tiles > 0) fetch_weights<S>(p, shared, step.rows, thread);
    }
    const int slot = place.slot();
    const std::uint32_t full = ptx::shared_address(&shared.q_full[slot]);
    ptx::wait(ptx::shared_address(&shared.q_empty[slot]), place.phase() ^ 1);
    if (thread < 32) write_segment<S>(shared.segments[slot], step);
    if (step.tiles == 0) {
      ptx::barrier_arrive(full);
      break;
    }
    if constexpr (S.f16()) {
      const std::uint32_t raw = ptx::shared_address(&shared.q_raw[slot]);
      if (thread == 0) load_queries<S>(p, shared, slot, step.rows, raw);
      scale_queries<S>(p, shared, slot, step.rows.first, step.rows.count, thread, place.phase());
      ptx::fence_async_proxy();
      ptx::barrier_arrive(full);
    } else {
      for (int c = thread; c < kBlockColumns; c += S.prepare_threads()) {
        shared.weights[slot][c] = shared.scaled_weights[c];
      }
      // The first thread's arrival is that of its copies.
      if (thread == 0) {
        load_queries<S>(p, shared, slot, step.rows, full);
      } else {
        ptx::barrier_arrive(full);
      }
    }
    cleaning.some(p, S.block_rows(), thread);
  }
  cleaning.some(p, p.rows, thread);
}

}  // namespace megamoe::mqa
