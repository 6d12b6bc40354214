#include "mqa_logits/arguments.hpp"

#include <limits>

#include "base/check.hpp"

namespace megamoe::mqa {
namespace {

constexpr std::int64_t kMaxKeys = std::numeric_limits<std::int32_t>::max();

void refuse_fp4(MqaFormat format, const char* name) {
  if (format == MqaFormat::e2m1) {
    fail(ErrorCode::unsupported,
         "{} is FP4 (E2M1): the MQA logits are computed from E4M3; convert {} to E4M3", name, name);
  }
}

void need(const void* pointer, const char* name) {
  check_argument(pointer != nullptr, "{} is null", name);
}

void validate_queries(const MqaQueries& queries) {
  check_argument(queries.rows >= 0, "rows is {}: 0 or more are wanted", queries.rows);
  check_argument(queries.heads >= 1 && queries.heads <= kMaxHeads, "heads is {}: 1 to {} is wanted",
                 queries.heads, kMaxHeads);
  check_argument(queries.head_dim == 32 || queries.head_dim == 64 || queries.head_dim == 128,
                 "head_dim is {}: 32, 64 or 128 is wanted", queries.head_dim);
  refuse_fp4(queries.format, "q");
}

void validate_output(const MqaLogitsOutput& output, std::int64_t rows, std::int64_t columns) {
  check_argument(output.row_stride >= columns, "row_stride is {}: at least the {} columns",
                 output.row_stride, columns);
  const std::int64_t limit =
      std::numeric_limits<std::int64_t>::max() / max64(output.row_stride, 1) / 4;
  check_argument(rows <= limit, "{} rows with a row_stride of {} do not fit 64 bits", rows,
                 output.row_stride);
  const std::int64_t mask = logit_bytes(output.format) - 1;
  check_argument((reinterpret_cast<std::intptr_t>(output.logits) & mask) == 0,
                 "logits is not aligned to its values of {} bytes", mask + 1);
}

}  // namespace

void validate(const MqaLogitsInput& input, const MqaLogitsOutput& output) {
  validate_queries(input.queries);
  refuse_fp4(input.kv_format, "kv");
  check_argument(input.keys >= 0 && input.keys <= kMaxKeys, "keys is {}: 0 to {} is wanted",
                 input.keys, kMaxKeys);
  validate_output(output, input.queries.rows, input.keys);
  if (input.queries.rows == 0 || input.keys == 0) return;
  need(input.queries.q, "q");
  need(input.queries.weights, "weights");
  need(input.kv, "kv");
  need(input.kv_scales, "kv_scales");
  need(output.logits, "logits");
}

void validate(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output) {
  validate_queries(input.queries);
  refuse_fp4(input.cache_format, "the cache");
  check_argument(input.sequences >= 0, "sequences is {}: 0 or more are wanted", input.sequences);
  check_argument(input.next_n >= 1, "next_n is {}: 1 or more are wanted", input.next_n);
  check_argument(input.sequences <= kMaxKeys && input.next_n <= kMaxKeys &&
                     input.queries.rows == input.sequences * input.next_n,
                 "rows is {}: {} sequences of {} new tokens have sequences * next_n",
                 input.queries.rows, input.sequences, input.next_n);
  check_argument(input.blocks >= 0 && input.blocks <= kMaxKeys, "blocks is {}: 0 to {} is wanted",
                 input.blocks, kMaxKeys);
  check_argument(input.max_blocks >= 0 && input.max_blocks <= kMaxKeys / kMqaBlockKeys,
                 "max_blocks is {}: 0 to {} is wanted", input.max_blocks, kMaxKeys / kMqaBlockKeys);
  check_argument(input.max_context >= 0 && input.max_context <= input.max_blocks * kMqaBlockKeys,
                 "max_context is {}: a table of {} blocks of {} keys holds 0 to {}",
                 input.max_context, input.max_blocks, kMqaBlockKeys,
                 input.max_blocks * kMqaBlockKeys);
  validate_output(output, input.queries.rows, input.max_context);
  if (input.queries.rows == 0 || input.max_context == 0) return;
  need(input.queries.q, "q");
  need(input.queries.weights, "weights");
  if (input.blocks > 0) need(input.cache, "cache");
  need(input.context_lengths, "context_lengths");
  need(input.block_table, "block_table");
  need(output.logits, "logits");
}

MqaLogitsInput rows_of(const MqaLogitsInput& input, const MqaChunk& chunk) {
  MqaLogitsInput part = input;
  MqaQueries& queries = part.queries;
  queries.rows = chunk.rows;
  queries.q += chunk.first_row * queries.heads * queries.head_dim;
  const std::int64_t weight_bytes = queries.weight_format == MqaWeightFormat::f32 ? 4 : 2;
  queries.weights = static_cast<const std::byte*>(queries.weights) +
                    chunk.first_row * queries.heads * weight_bytes;
  if (part.begins != nullptr) part.begins += chunk.first_row;
  if (part.ends != nullptr) part.ends += chunk.first_row;
  return part;
}

std::int64_t rows_per_chunk(const MqaLogitsInput& input, const MqaChunkBuffer& buffer) {
  const std::int64_t row_bytes = buffer.output.row_stride * logit_bytes(buffer.output.format);
  // Without columns there is nothing to hold.
  if (row_bytes == 0) return max64(input.queries.rows, 1);
  check_argument(buffer.bytes >= row_bytes,
                 "a buffer of {} bytes holds no row of {} bytes: at least one row is wanted",
                 buffer.bytes, row_bytes);
  return buffer.bytes / row_bytes;
}

}  // namespace megamoe::mqa
