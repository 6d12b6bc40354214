#include "mqa_logits/reference.hpp"

#include <cstring>
#include <limits>

#include "mqa_logits/arguments.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/f16.hpp"

namespace megamoe::mqa {
namespace {

/// One logit, from a key's values and its scale.
double logit(const MqaQueries& queries, std::int64_t row, const std::byte* key, float scale) {
  double sum = 0;
  for (std::int64_t h = 0; h < queries.heads; ++h) {
    const std::byte* q = queries.q + (row * queries.heads + h) * queries.head_dim;
    double dot = 0;
    for (std::int64_t d = 0; d < queries.head_dim; ++d) {
      dot += double{e4m3_to_float(std::to_integer<std::uint8_t>(q[d]))} *
             double{e4m3_to_float(std::to_integer<std::uint8_t>(key[d]))};
    }
    sum += double{weight_at(queries, row, h)} * (dot < 0 ? 0 : dot);
  }
  return sum * double{scale};
}

std::vector<double> all_outside(std::int64_t rows, std::int64_t columns) {
  return std::vector<double>(static_cast<std::size_t>(rows * columns),
                             -std::numeric_limits<double>::infinity());
}

}  // namespace

float weight_at(const MqaQueries& queries, std::int64_t row, std::int64_t head) {
  const std::int64_t at = row * queries.heads + head;
  if (queries.weight_format == MqaWeightFormat::f32) {
    return static_cast<const float*>(queries.weights)[at];
  }
  return f16_to_float(static_cast<const std::uint16_t*>(queries.weights)[at]);
}

std::vector<double> reference(const MqaLogitsInput& input) {
  const MqaQueries& queries = input.queries;
  std::vector<double> logits = all_outside(queries.rows, input.keys);
  for (std::int64_t row = 0; row < queries.rows; ++row) {
    const KeyRange range = range_of(input.begins, input.ends, row, input.keys);
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      logits[static_cast<std::size_t>(row * input.keys + j)] =
          logit(queries, row, input.kv + j * queries.head_dim, input.kv_scales[j]);
    }
  }
  return logits;
}

std::vector<double> reference(const PagedMqaLogitsInput& input) {
  const MqaQueries& queries = input.queries;
  const std::int64_t block_bytes = kMqaBlockKeys * (queries.head_dim + 4);
  std::vector<double> logits = all_outside(queries.rows, input.max_context);
  for (std::int64_t row = 0; row < queries.rows; ++row) {
    const std::int64_t sequence = row / input.next_n;
    const KeyRange range = context_of(input.context_lengths, input.lengths, sequence,
                                      row % input.next_n, input.next_n, input.max_context);
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      const std::int64_t entry = sequence * input.max_blocks + j / kMqaBlockKeys;
      const std::byte* block = input.cache + input.block_table[entry] * block_bytes;
      const std::int64_t place = j % kMqaBlockKeys;
      float scale = 0;
      std::memcpy(&scale, block + kMqaBlockKeys * queries.head_dim + place * 4, sizeof scale);
      logits[static_cast<std::size_t>(row * input.max_context + j)] =
          logit(queries, row, block + place * queries.head_dim, scale);
    }
  }
  return logits;
}

}  // namespace megamoe::mqa
