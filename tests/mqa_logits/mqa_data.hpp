// Random calls of the MQA logits: the numbers in vectors, and views of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "megamoe/mqa_logits.hpp"

#include "base/integers.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/f16.hpp"

namespace megamoe::test {

struct MqaSize {
  std::int64_t rows, keys, heads, head_dim;
};

enum class Ranges { whole, causal, ragged };

/// E4M3 bytes as a quantised activation has them: normal values scaled to a largest of 448.
inline std::vector<std::byte> random_e4m3(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 110.0f);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& b : bytes) b = std::byte{float_to_e4m3(normal(random))};
  return bytes;
}

struct QueryData {
  QueryData(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, MqaWeightFormat format,
            std::mt19937& random)
      : q(random_e4m3(rows * heads * head_dim, random)) {
    std::normal_distribution<float> normal(0.0f, 0.3f);
    for (std::int64_t i = 0; i < rows * heads; ++i) {
      f16.push_back(float_to_f16(normal(random)));
      f32.push_back(normal(random));
    }
    view = {.rows = rows,
            .heads = heads,
            .head_dim = head_dim,
            .q = q.data(),
            .weights = format == MqaWeightFormat::f32 ? static_cast<const void*>(f32.data())
                                                      : static_cast<const void*>(f16.data()),
            .weight_format = format};
  }
  QueryData(const QueryData&) = delete;

  std::vector<std::byte> q;
  std::vector<float> f32;
  std::vector<std::uint16_t> f16;
  MqaQueries view;
};

inline std::vector<float> random_scales(std::int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
  std::vector<float> scales(static_cast<std::size_t>(count));
  for (float& s : scales) s = uniform(random) * 0x1p-12f;
  return scales;
}

struct DenseData {
  DenseData(const MqaSize& size, Ranges ranges, MqaWeightFormat format, unsigned seed)
      : random(seed),
        queries(size.rows, size.heads, size.head_dim, format, random),
        kv(random_e4m3(size.keys * size.head_dim, random)),
        scales(random_scales(size.keys, random)) {
    const auto rows = static_cast<std::int32_t>(size.rows);
    const auto keys = static_cast<std::int32_t>(size.keys);
    std::uniform_int_distribution<std::int32_t> any(-20, keys + 20);
    for (std::int32_t i = 0; i < rows; ++i) {
      if (ranges == Ranges::causal) {
        begins.push_back(0);
        ends.push_back(keys - rows + 1 + i);
      } else if (ranges == Ranges::ragged) {
        begins.push_back(i % 7 == 3 ? keys : any(random));
        ends.push_back(i % 5 == 1 ? -1 : any(random));
      }
    }
    input = {.queries = queries.view,
             .keys = size.keys,
             .kv = kv.data(),
             .kv_scales = scales.data(),
             .begins = begins.empty() ? nullptr : begins.data(),
             .ends = ends.empty() ? nullptr : ends.data()};
  }

  std::mt19937 random;
  QueryData queries;
  std::vector<std::byte> kv;
  std::vector<float> scales;
  std::vector<std::int32_t> begins;
  std::vector<std::int32_t> ends;
  MqaLogitsInput input;
};

struct PagedSize {
  std::int64_t sequences, next_n, heads, head_dim, max_blocks;
};

/// A cache with more blocks than the tables name, in a shuffled order; entries beyond a context are
/// no blocks at all.
struct PagedData {
  PagedData(const PagedSize& size, MqaContextLengths kind, MqaWeightFormat format, unsigned seed)
      : random(seed),
        queries(size.sequences * size.next_n, size.heads, size.head_dim, format, random) {
    const std::int64_t blocks = size.sequences * size.max_blocks + 3;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto values = random_e4m3(kMqaBlockKeys * size.head_dim, random);
      const auto scales = random_scales(kMqaBlockKeys, random);
      cache.insert(cache.end(), values.begin(), values.end());
      const auto* bytes = reinterpret_cast<const std::byte*>(scales.data());
      cache.insert(cache.end(), bytes, bytes + kMqaBlockKeys * 4);
    }
    const auto max_context = static_cast<std::int32_t>(size.max_blocks * kMqaBlockKeys - 10);
    std::uniform_int_distribution<std::int32_t> any(0, max_context);
    const std::int64_t lengths =
        kind == MqaContextLengths::per_row ? size.sequences * size.next_n : size.sequences;
    for (std::int64_t i = 0; i < lengths; ++i) contexts.push_back(any(random));
    contexts.back() = max_context;
    if (lengths > 1) contexts.front() = 0;
    fill_table(size, kind, blocks);
    input = {.queries = queries.view,
             .sequences = size.sequences,
             .next_n = size.next_n,
             .cache = cache.data(),
             .blocks = blocks,
             .context_lengths = contexts.data(),
             .lengths = kind,
             .block_table = table.data(),
             .max_blocks = size.max_blocks,
             .max_context = max_context};
  }

  void fill_table(const PagedSize& size, MqaContextLengths kind, std::int64_t blocks) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random);
    table.assign(static_cast<std::size_t>(size.sequences * size.max_blocks), -1);
    for (std::int64_t s = 0; s < size.sequences; ++s) {
      std::int64_t longest = 0;
      for (std::int64_t n = 0; n < size.next_n; ++n) {
        const std::int64_t at = kind == MqaContextLengths::per_row ? s * size.next_n + n : s;
        longest = max64(longest, contexts[static_cast<std::size_t>(at)]);
      }
      for (std::int64_t b = 0; b < ceil_div(longest, kMqaBlockKeys); ++b) {
        const auto at = static_cast<std::size_t>(s * size.max_blocks + b);
        table[at] = ids[at];
      }
    }
  }

  std::mt19937 random;
  QueryData queries;
  std::vector<std::byte> cache;
  std::vector<std::int32_t> contexts;
  std::vector<std::int32_t> table;
  PagedMqaLogitsInput input;
};

}  // namespace megamoe::test
