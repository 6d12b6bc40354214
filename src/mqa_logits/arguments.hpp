// What every backend of the MQA logits does with its arguments: refuse, clip, cut into chunks.
#pragma once

#include <cstdint>

#include "megamoe/mqa_logits.hpp"

#include "base/integers.hpp"

namespace megamoe::mqa {

inline constexpr std::int64_t kMaxHeads = 64;

/// Throw Error{invalid_argument} or Error{unsupported}. Nothing behind a pointer is read.
void validate(const MqaLogitsInput& input, const MqaLogitsOutput& output);
void validate(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output);

struct KeyRange {
  std::int64_t begin;
  std::int64_t end;  ///< at least `begin`
};

/// The clipped range; an empty one is {0, 0}.
constexpr KeyRange clip(std::int64_t begin, std::int64_t end, std::int64_t keys) {
  const KeyRange range{max64(begin, 0), min64(end, keys)};
  return range.begin < range.end ? range : KeyRange{0, 0};
}

/// Row `row` of the batch's; null arrays as in MqaLogitsInput.
constexpr KeyRange range_of(const std::int32_t* begins, const std::int32_t* ends, std::int64_t row,
                            std::int64_t keys) {
  return clip(begins == nullptr ? 0 : begins[row], ends == nullptr ? keys : ends[row], keys);
}

/// The keys that new token `token` of `sequence` sees.
constexpr KeyRange context_of(const std::int32_t* lengths, MqaContextLengths kind,
                              std::int64_t sequence, std::int64_t token, std::int64_t next_n,
                              std::int64_t max_context) {
  const std::int64_t length = kind == MqaContextLengths::per_row
                                  ? lengths[sequence * next_n + token]
                                  : lengths[sequence] - (next_n - 1 - token);
  return clip(0, length, max_context);
}

/// Bytes of a logit.
constexpr std::int64_t logit_bytes(MqaLogitFormat format) {
  return format == MqaLogitFormat::f32 ? 4 : 2;
}

/// Rows first_row to first_row + rows - 1 of the batch.
MqaLogitsInput rows_of(const MqaLogitsInput& input, const MqaChunk& chunk);

/// How many rows the buffer holds. Throws Error{invalid_argument} when not even one.
std::int64_t rows_per_chunk(const MqaLogitsInput& input, const MqaChunkBuffer& buffer);

/// Calls run(the chunk's rows, chunk) for all rows in order. Throws as rows_per_chunk does.
template <class Run>
void for_each_chunk(const MqaLogitsInput& input, const MqaChunkBuffer& buffer, const Run& run) {
  const std::int64_t step = rows_per_chunk(input, buffer);
  for (std::int64_t row = 0; row < input.queries.rows; row += step) {
    const MqaChunk chunk{row, min64(step, input.queries.rows - row)};
    run(rows_of(input, chunk), chunk);
  }
}

}  // namespace megamoe::mqa
