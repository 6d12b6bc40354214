#include "mqa_logits/cpu.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.hpp"
#include "mqa_logits/arguments.hpp"
#include "mqa_logits/reference.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::mqa {
namespace {

/// Rows that share a panel: decoding a tile of keys costs about as much as one row's products.
/// 8 rows of q as f32 are 256 KiB at most, which stays in the L2 cache.
constexpr std::int64_t kBlockRows = 8;
/// Tiles of a task: enough to make decoding q small, few enough to share out.
constexpr std::int64_t kTaskTiles = 16;

/// A tile of keys in memory.
struct TileSource {
  const std::byte* keys;
  const std::byte* scales;  ///< f32, at any alignment
};

/// Consecutive rows that see the same keys, each a range of its own.
struct RowBlock {
  std::int64_t first_row;
  std::int64_t rows;
  KeyRange ranges[kBlockRows];
};

/// What dense and paged calls have in common.
struct Work {
  const MqaQueries& queries;
  const MqaLogitsOutput& output;
  const CpuKernels& kernels;
  std::int64_t columns;
};

/// One worker's memory.
struct Scratch {
  explicit Scratch(const MqaQueries& queries)
      : q(static_cast<std::size_t>(kBlockRows * queries.heads * queries.head_dim)),
        weights(static_cast<std::size_t>(kBlockRows * queries.heads)),
        panel(static_cast<std::size_t>(queries.head_dim * kTileKeys)) {}
  std::vector<float> q;
  std::vector<float> weights;
  std::vector<float> panel;
  float scales[kTileKeys] = {};
  float logits[kTileKeys] = {};
};

void store(const MqaLogitsOutput& output, std::int64_t row, std::int64_t column, float value) {
  const std::int64_t at = row * output.row_stride + column;
  if (output.format == MqaLogitFormat::f32) {
    static_cast<float*>(output.logits)[at] = value;
  } else {
    static_cast<BFloat16*>(output.logits)[at] = to_bf16(value);
  }
}

void load_queries(const Work& work, const RowBlock& block, Scratch& scratch) {
  const MqaQueries& queries = work.queries;
  const std::int64_t row_values = queries.heads * queries.head_dim;
  work.kernels.decode(queries.q + block.first_row * row_values, block.rows * row_values,
                      scratch.q.data());
  for (std::int64_t i = 0; i < block.rows * queries.heads; ++i) {
    scratch.weights[static_cast<std::size_t>(i)] =
        weight_at(queries, block.first_row + i / queries.heads, i % queries.heads);
  }
}

/// The logits of all rows of the block for the keys [first, first + count) of one tile.
void run_tile(const Work& work, const RowBlock& block, const TileSource& source, std::int64_t first,
              std::int64_t count, Scratch& scratch) {
  const MqaQueries& queries = work.queries;
  work.kernels.load_panel(source.keys, count, queries.head_dim, scratch.panel.data());
  std::memcpy(scratch.scales, source.scales, static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t begin = max64(first, block.ranges[r].begin);
    const std::int64_t end = min64(first + count, block.ranges[r].end);
    if (begin >= end) continue;
    work.kernels.row_logits({.q = scratch.q.data() + r * queries.heads * queries.head_dim,
                             .weights = scratch.weights.data() + r * queries.heads,
                             .heads = queries.heads,
                             .head_dim = queries.head_dim,
                             .panel = scratch.panel.data(),
                             .scales = scratch.scales,
                             .logits = scratch.logits});
    for (std::int64_t j = begin; j < end; ++j) {
      store(work.output, block.first_row + r, j, scratch.logits[j - first]);
    }
  }
}

/// -infinity in the columns [first, end) that are outside the rows' ranges.
void clean(const Work& work, const RowBlock& block, std::int64_t first, std::int64_t end) {
  constexpr float kOutside = -std::numeric_limits<float>::infinity();
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const KeyRange range = block.ranges[r];
    const std::int64_t row = block.first_row + r;
    for (std::int64_t j = first; j < min64(end, range.begin); ++j) {
      store(work.output, row, j, kOutside);
    }
    for (std::int64_t j = max64(first, range.end); j < end; ++j) {
      store(work.output, row, j, kOutside);
    }
  }
}

/// The keys that any row of the block sees.
KeyRange union_of(const RowBlock& block) {
  KeyRange all{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::int64_t r = 0; r < block.rows; ++r) {
    if (block.ranges[r].begin == block.ranges[r].end) continue;
    all = {min64(all.begin, block.ranges[r].begin), max64(all.end, block.ranges[r].end)};
  }
  return all.begin < all.end ? all : KeyRange{0, 0};
}

/// Shares tasks of a row block and kTaskTiles tiles among the workers. `block_at(b)` tells a block,
/// `source_at(block, tile)` where a tile of keys is.
template <class BlockAt, class SourceAt>
void run_tasks(const Work& work, std::int64_t blocks, WorkerPool& pool, const BlockAt& block_at,
               const SourceAt& source_at) {
  constexpr std::int64_t kTaskKeys = kTaskTiles * kTileKeys;
  const std::int64_t parts = ceil_div(work.columns, kTaskKeys);
  std::atomic<std::int64_t> next{0};
  pool.run(min64(pool.threads(), blocks * parts), [&](std::int64_t) {
    Scratch scratch(work.queries);
    std::int64_t loaded = -1;
    for (std::int64_t task = next++; task < blocks * parts; task = next++) {
      const RowBlock block = block_at(task / parts);
      const std::int64_t first = task % parts * kTaskKeys;
      const std::int64_t end = min64(first + kTaskKeys, work.columns);
      if (work.output.outside == MqaOutside::minus_infinity) clean(work, block, first, end);
      const KeyRange keys = union_of(block);
      const std::int64_t from = max64(first, keys.begin / kTileKeys * kTileKeys);
      for (std::int64_t at = from; at < min64(end, keys.end); at += kTileKeys) {
        if (loaded != block.first_row) load_queries(work, block, scratch);
        loaded = block.first_row;
        run_tile(work, block, source_at(block, at / kTileKeys), at, min64(kTileKeys, keys.end - at),
                 scratch);
      }
    }
  });
}

}  // namespace

void run_on_cpu(const MqaLogitsInput& input, const MqaLogitsOutput& output,
                const CpuKernels& kernels, WorkerPool& pool) {
  const MqaQueries& queries = input.queries;
  if (queries.rows == 0 || input.keys == 0) return;
  const auto block_at = [&](std::int64_t index) {
    RowBlock block{index * kBlockRows, min64(kBlockRows, queries.rows - index * kBlockRows), {}};
    for (std::int64_t r = 0; r < block.rows; ++r) {
      block.ranges[r] = range_of(input.begins, input.ends, block.first_row + r, input.keys);
    }
    return block;
  };
  const auto source_at = [&](const RowBlock&, std::int64_t tile) {
    return TileSource{input.kv + tile * kTileKeys * queries.head_dim,
                      reinterpret_cast<const std::byte*>(input.kv_scales + tile * kTileKeys)};
  };
  run_tasks({queries, output, kernels, input.keys}, ceil_div(queries.rows, kBlockRows), pool,
            block_at, source_at);
}

void run_on_cpu(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output,
                const CpuKernels& kernels, WorkerPool& pool) {
  static_assert(kTileKeys == kMqaBlockKeys);
  const MqaQueries& queries = input.queries;
  if (queries.rows == 0 || input.max_context == 0) return;
  const std::int64_t sequence_blocks = ceil_div(input.next_n, kBlockRows);
  const auto block_at = [&](std::int64_t index) {
    const std::int64_t sequence = index / sequence_blocks;
    const std::int64_t first = index % sequence_blocks * kBlockRows;
    RowBlock block{sequence * input.next_n + first, min64(kBlockRows, input.next_n - first), {}};
    for (std::int64_t r = 0; r < block.rows; ++r) {
      block.ranges[r] = context_of(input.context_lengths, input.lengths, sequence, first + r,
                                   input.next_n, input.max_context);
    }
    return block;
  };
  const auto source_at = [&](const RowBlock& block, std::int64_t tile) {
    const std::int64_t sequence = block.first_row / input.next_n;
    const std::int64_t id = input.block_table[sequence * input.max_blocks + tile];
    check_argument(id >= 0 && id < input.blocks,
                   "block_table[{}][{}] is {}: the cache has blocks 0 to {}", sequence, tile, id,
                   input.blocks - 1);
    const std::byte* data = input.cache + id * kMqaBlockKeys * (queries.head_dim + 4);
    return TileSource{data, data + kMqaBlockKeys * queries.head_dim};
  };
  run_tasks({queries, output, kernels, input.max_context}, input.sequences * sequence_blocks, pool,
            block_at, source_at);
}

}  // namespace megamoe::mqa
