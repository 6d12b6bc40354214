// FP8 MQA logits.
#include <cstdint>
#include <optional>
#include <string_view>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "megamoe/mqa_logits.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

/// Arrays that a call reads, where all of them must be, and the stream for a GPU's.
struct Call {
  Place place;
  std::uintptr_t stream;
};

ArrayIn input(nb::handle object, std::string_view what, const Call& call, Element element,
              std::initializer_list<std::int64_t> shape) {
  ArrayIn array(object, what);
  array.want(element, shape);
  array.want_place(call.place);
  array.want_contiguous();
  return array;
}

/// q [rows, heads, D] and weights [rows, heads], f32 or f16.
struct Queries {
  Queries(nb::handle q_object, nb::handle weights_object)
      : q(q_object, "q"), weights(weights_object, "weights") {
    q.want(Element::byte, {-1, -1, -1});
    q.want_contiguous();
    const bool half = weights.holds(Element::f16);
    weights.want(half ? Element::f16 : Element::f32, {q.size(0), q.size(1)});
    weights.want_place(q.place());
    weights.want_contiguous();
    view = {.rows = q.size(0),
            .heads = q.size(1),
            .head_dim = q.size(2),
            .q = q.bytes(),
            .weights = weights.bytes(),
            .weight_format = half ? MqaWeightFormat::f16 : MqaWeightFormat::f32};
  }
  ArrayIn q;
  ArrayIn weights;
  MqaQueries view;
};

MqaLogitsOutput output_of(const ArrayOut& logits, Element element, std::int64_t columns,
                          bool clean) {
  return {.logits = logits.bytes(),
          .format = element == Element::bf16 ? MqaLogitFormat::bf16 : MqaLogitFormat::f32,
          .row_stride = columns,
          .outside = clean ? MqaOutside::minus_infinity : MqaOutside::unspecified};
}

Element logit_element(nb::handle logits) {
  return ArrayIn(logits, "logits").holds(Element::bf16) ? Element::bf16 : Element::f32;
}

template <class Input>
void run(const Input& input, const MqaLogitsOutput& output, const Call& call,
         std::optional<std::int64_t> workers) {
  const nb::gil_scoped_release computing;
  if (call.place == kHost) {
    MqaLogits({.workers = workers}).run(input, output);
  } else {
    check_argument(!workers.has_value(), "workers are threads of the CPU, but q is on a device");
    mqa_logits_on_gpu(input, output, reinterpret_cast<void*>(call.stream));
  }
}

void logits(nb::handle q, nb::handle kv, nb::handle scales, nb::handle weights, nb::handle begins,
            nb::handle ends, nb::handle out, bool clean, std::uintptr_t stream,
            std::optional<std::int64_t> workers) {
  const Queries queries(q, weights);
  const Call call{queries.q.place(), stream};
  const std::int64_t rows = queries.view.rows;
  const ArrayIn keys = input(kv, "kv", call, Element::byte, {-1, queries.view.head_dim});
  const ArrayIn factors = input(scales, "kv_scale", call, Element::f32, {keys.size(0)});
  const ArrayIn first = input(begins, "ks", call, Element::i32, {rows});
  const ArrayIn last = input(ends, "ke", call, Element::i32, {rows});
  const Element element = logit_element(out);
  const ArrayOut result(out, "logits", element, {rows, keys.size(0)}, call.place);
  run(MqaLogitsInput{.queries = queries.view,
                     .keys = keys.size(0),
                     .kv = keys.bytes(),
                     .kv_scales = factors.as<float>(),
                     .begins = first.as<std::int32_t>(),
                     .ends = last.as<std::int32_t>()},
      output_of(result, element, keys.size(0), clean), call, workers);
}

void paged_logits(nb::handle q, std::int64_t next_n, nb::handle cache, nb::handle weights,
                  nb::handle lengths, nb::handle table, nb::handle out, bool clean,
                  std::uintptr_t stream, std::optional<std::int64_t> workers) {
  const Queries queries(q, weights);
  const Call call{queries.q.place(), stream};
  check_argument(next_n >= 1 && queries.view.rows % next_n == 0,
                 "{} rows of queries: whole sequences of {} new tokens are wanted",
                 queries.view.rows, next_n);
  const std::int64_t sequences = queries.view.rows / next_n;
  const std::int64_t block_bytes = kMqaBlockKeys * (queries.view.head_dim + 4);
  const ArrayIn blocks = input(cache, "kv_cache", call, Element::byte, {-1, block_bytes});
  const ArrayIn contexts(lengths, "context_lens");
  const bool per_row = contexts.ndim() == 2;
  if (per_row) {
    contexts.want(Element::i32, {sequences, next_n});
  } else {
    contexts.want(Element::i32, {sequences});
  }
  contexts.want_place(call.place);
  contexts.want_contiguous();
  const ArrayIn pages = input(table, "block_table", call, Element::i32, {sequences, -1});
  const Element element = logit_element(out);
  const ArrayOut result(out, "logits", element, {queries.view.rows, -1}, call.place);
  const std::int64_t columns = ArrayIn(out, "logits").size(1);
  run(PagedMqaLogitsInput{.queries = queries.view,
                          .sequences = sequences,
                          .next_n = next_n,
                          .cache = blocks.bytes(),
                          .blocks = blocks.size(0),
                          .context_lengths = contexts.as<std::int32_t>(),
                          .lengths = per_row ? MqaContextLengths::per_row
                                             : MqaContextLengths::per_sequence,
                          .block_table = pages.as<std::int32_t>(),
                          .max_blocks = pages.size(1),
                          .max_context = columns},
      output_of(result, element, columns, clean), call, workers);
}

}  // namespace

void bind_mqa(nb::module_& module) {
  module.def("mqa_logits", &logits, "q"_a, "kv"_a, "kv_scale"_a, "weights"_a, "ks"_a, "ke"_a,
             "logits"_a, "clean"_a, "stream"_a, "workers"_a.none());
  module.def("paged_mqa_logits", &paged_logits, "q"_a, "next_n"_a, "kv_cache"_a, "weights"_a,
             "context_lens"_a, "block_table"_a, "logits"_a, "clean"_a, "stream"_a,
             "workers"_a.none());
}

}  // namespace megamoe::python
