#include <cstring>

#include "megamoe/megamoe.h"
#include "megamoe/mqa_logits.hpp"

#include "api/c_status.hpp"
#include "api/c_translate.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names of megamoe.h
struct megamoe_mqa {
  megamoe::MqaLogits logits;
};
// NOLINTEND(readability-identifier-naming)

namespace megamoe::c {
namespace {

/// An enumeration of two values, whose numbers are those of the C++ one. Its bytes are read as a
/// number: C may leave any there, and C++ may not read an enumeration that holds none of its own.
template <class To, class From>
To two_valued(const From& value, const char* name) {
  unsigned number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  check_argument(number <= 1, "{} is {}: a value of its enumeration is wanted", name, number);
  return static_cast<To>(number);
}

const std::byte* bytes(const void* pointer) {
  return static_cast<const std::byte*>(pointer);
}

MqaQueries to_queries(const megamoe_mqa_queries& from) {
  return {
      .rows = from.rows,
      .heads = from.heads,
      .head_dim = from.head_dim,
      .q = bytes(from.q),
      .format = two_valued<MqaFormat>(from.format, "queries.format"),
      .weights = from.weights,
      .weight_format = two_valued<MqaWeightFormat>(from.weight_format, "queries.weight_format")};
}

MqaLogitsInput to_input(const megamoe_mqa_input& from) {
  return {.queries = to_queries(from.queries),
          .keys = from.keys,
          .kv = bytes(from.kv),
          .kv_format = two_valued<MqaFormat>(from.kv_format, "kv_format"),
          .kv_scales = from.kv_scales,
          .begins = from.begins,
          .ends = from.ends};
}

PagedMqaLogitsInput to_input(const megamoe_mqa_paged_input& from) {
  return {.queries = to_queries(from.queries),
          .sequences = from.sequences,
          .next_n = from.next_n,
          .cache = bytes(from.cache),
          .cache_format = two_valued<MqaFormat>(from.cache_format, "cache_format"),
          .blocks = from.blocks,
          .context_lengths = from.context_lengths,
          .lengths = two_valued<MqaContextLengths>(from.lengths, "lengths"),
          .block_table = from.block_table,
          .max_blocks = from.max_blocks,
          .max_context = from.max_context};
}

MqaLogitsOutput to_output(const megamoe_mqa_output& from) {
  return {.logits = from.logits,
          .format = two_valued<MqaLogitFormat>(from.format, "output.format"),
          .row_stride = from.row_stride,
          .outside = two_valued<MqaOutside>(from.outside, "output.outside")};
}

template <class Input>
megamoe_status run(megamoe_mqa* mqa, const Input* input, const megamoe_mqa_output* output) {
  return guarded([&] {
    required(mqa, "mqa")
        .logits.run(to_input(required(input, "input")), to_output(required(output, "output")));
  });
}

template <class Input>
megamoe_status enqueue(const Input* input, const megamoe_mqa_output* output, void* stream) {
  return guarded([&] {
    mqa_logits_on_gpu(to_input(required(input, "input")), to_output(required(output, "output")),
                      stream);
  });
}

MqaChunkConsumer to_consumer(megamoe_mqa_consumer consumer, void* user) {
  check_argument(consumer != nullptr, "consumer is NULL: a function is wanted");
  return [=](const MqaChunk& chunk) { consumer(user, chunk.first_row, chunk.rows); };
}

}  // namespace
}  // namespace megamoe::c

using namespace megamoe::c;

megamoe_status megamoe_mqa_create(int64_t workers, megamoe_instruction_set instruction_set,
                                  megamoe_mqa** mqa) {
  return made(mqa, "mqa", [&] {
    megamoe_layer_options layer{};
    layer.workers = workers;
    layer.instruction_set = instruction_set;
    const megamoe::LayerOptions options = to_options(&layer);
    return megamoe_mqa{megamoe::MqaLogits(
        {.workers = options.workers, .instruction_set = options.instruction_set})};
  });
}

void megamoe_mqa_destroy(megamoe_mqa* mqa) {
  delete mqa;
}

megamoe_status megamoe_mqa_run(megamoe_mqa* mqa, const megamoe_mqa_input* input,
                               const megamoe_mqa_output* output) {
  return run(mqa, input, output);
}

megamoe_status megamoe_mqa_run_paged(megamoe_mqa* mqa, const megamoe_mqa_paged_input* input,
                                     const megamoe_mqa_output* output) {
  return run(mqa, input, output);
}

megamoe_status megamoe_mqa_run_in_chunks(megamoe_mqa* mqa, const megamoe_mqa_input* input,
                                         const megamoe_mqa_output* output, int64_t buffer_bytes,
                                         megamoe_mqa_consumer consumer, void* user) {
  return guarded([&] {
    required(mqa, "mqa")
        .logits.run(to_input(required(input, "input")),
                    {to_output(required(output, "output")), buffer_bytes},
                    to_consumer(consumer, user));
  });
}

megamoe_status megamoe_mqa_enqueue(const megamoe_mqa_input* input, const megamoe_mqa_output* output,
                                   void* stream) {
  return enqueue(input, output, stream);
}

megamoe_status megamoe_mqa_enqueue_paged(const megamoe_mqa_paged_input* input,
                                         const megamoe_mqa_output* output, void* stream) {
  return enqueue(input, output, stream);
}

megamoe_status megamoe_mqa_enqueue_in_chunks(const megamoe_mqa_input* input,
                                             const megamoe_mqa_output* output, int64_t buffer_bytes,
                                             megamoe_mqa_consumer consumer, void* user,
                                             void* stream) {
  return guarded([&] {
    megamoe::mqa_logits_on_gpu(to_input(required(input, "input")),
                               {to_output(required(output, "output")), buffer_bytes},
                               to_consumer(consumer, user), stream);
  });
}
