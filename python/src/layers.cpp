// Layers, their batches and graphs.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "megamoe/checkpoint.hpp"
#include "megamoe/layer.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "numerics/recipe.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"
#include "python/src/places.hpp"
#include "python/src/weights.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

/// A batch, the layer whose memory it shows, and the caller's x if it brings one.
struct PythonBatch {
  Batch batch;
  Place place;
  LayerConfig config;
  nb::object layer;
  std::optional<ArrayIn> x_bf16;

  nb::object x() const {
    const bool bf16 = x_format(config.recipe) == XFormat::bf16;
    return array_of(batch.x.data(), bf16 ? Element::bf16 : Element::byte,
                    {batch.tokens, config.hidden}, layer, place);
  }
  nb::object x_scales() const {
    const std::int64_t bytes = x_scale_row_bytes(config.recipe, config.hidden);
    if (bytes == 0) return nb::none();
    if (x_format(config.recipe) == XFormat::e4m3_f32_128) {
      return array_of(batch.x_scales.data(), Element::f32, {batch.tokens, bytes / 4}, layer, place);
    }
    return array_of(batch.x_scales.data(), Element::byte, {batch.tokens, bytes}, layer, place);
  }
  nb::object experts() const {
    return array_of(batch.experts.data(), Element::i64, {batch.tokens, config.top_k}, layer, place);
  }
  nb::object weights() const {
    return array_of(batch.weights.data(), Element::f32, {batch.tokens, config.top_k}, layer, place);
  }
  void set_x_bf16(nb::handle object) {
    if (object.is_none()) {
      x_bf16.reset();
      batch.x_bf16 = {};
      return;
    }
    ArrayIn x(object, "x");
    check_x(x);
    batch.x_bf16 = x.span<BFloat16>();
    x_bf16 = std::move(x);
  }
  void check_x(const ArrayIn& x) const {
    x.want(Element::bf16, {batch.tokens, config.hidden});
    x.want_place(place);
    x.want_contiguous();
  }
};

void copy_experts(const ArrayIn& from, const Batch& batch, std::int64_t top_k) {
  const bool narrow = from.holds(Element::i32);
  from.want(narrow ? Element::i32 : Element::i64, {batch.tokens, top_k});
  from.want_place(kHost);
  from.want_contiguous();
  if (narrow) {
    std::ranges::copy(from.span<std::int32_t>(), batch.experts.begin());
  } else {
    std::ranges::copy(from.span<std::int64_t>(), batch.experts.begin());
  }
}

void copy_weights(const ArrayIn& from, const Batch& batch, std::int64_t top_k) {
  from.want(Element::f32, {batch.tokens, top_k});
  from.want_place(kHost);
  from.want_contiguous();
  std::ranges::copy(from.span<float>(), batch.weights.begin());
}

/// stream: absent for a call that returns when y is complete.
void forward(Layer& layer, const PythonBatch& batch, nb::handle y, std::string_view execution,
             std::optional<std::uintptr_t> stream) {
  const Execution how = parse_execution(execution);
  const ArrayOut out(y, "y", Element::bf16, {batch.batch.tokens, batch.config.hidden}, batch.place);
  const nb::gil_scoped_release computing;
  if (stream) {
    layer.forward(batch.batch, out.span<BFloat16>(), reinterpret_cast<void*>(*stream), how);
  } else {
    layer.forward(batch.batch, out.span<BFloat16>(), how);
  }
}

/// x, ids and weights of the caller, in one step, on the CPU.
void run(Layer& layer, nb::handle x, nb::handle experts, nb::handle weights, nb::handle y,
         std::string_view execution) {
  const Execution how = parse_execution(execution);
  const LayerConfig& config = layer.config();
  const ArrayIn input(x, "x");
  input.want(Element::bf16, {-1, config.hidden});
  input.want_place(kHost);
  input.want_contiguous();
  Batch batch = layer.batch(input.size(0));
  batch.x_bf16 = input.span<BFloat16>();
  copy_experts(ArrayIn(experts, "experts"), batch, config.top_k);
  copy_weights(ArrayIn(weights, "weights"), batch, config.top_k);
  const ArrayOut out(y, "y", Element::bf16, {batch.tokens, config.hidden});
  const nb::gil_scoped_release computing;
  layer.forward(batch, out.span<BFloat16>(), how);
}

struct PythonGraph {
  Graph graph;
  ArrayOut y;  // the memory that the graph writes
};

void bind_batch(nb::module_& module) {
  nb::class_<PythonBatch>(module, "Batch", R"(Views into a layer's memory for the input of one call.

Fill them, or set `x_bf16`, and pass the batch to Layer.forward. The views are NumPy arrays on the
CPU; formats that NumPy lacks show as unsigned integers of their width.

Attributes:
    tokens: T.
    x: [T, H], uint16 (bf16) or uint8 (E4M3), as the layer's recipe says.
    x_scales: uint8 UE8M0 [T, ceil(H / 32)], float32 [T, ceil(H / 128)], or None for bf16.
    experts: int64 [T, top_k]; negative: no route.
    weights: float32 [T, top_k].
    x_bf16: None, or the caller's bf16 x [T, H] to use instead of x and x_scales; not copied.)")
      .def_prop_ro("tokens", [](const PythonBatch& self) { return self.batch.tokens; })
      .def_prop_ro("x", &PythonBatch::x)
      .def_prop_ro("x_scales", &PythonBatch::x_scales)
      .def_prop_ro("experts", &PythonBatch::experts)
      .def_prop_ro("weights", &PythonBatch::weights)
      .def("_set_x_bf16", &PythonBatch::set_x_bf16, "x"_a.none());
}

void bind_graph(nb::module_& module) {
  nb::class_<PythonGraph>(module, "Graph")
      .def(
          "replay",
          [](PythonGraph& self, std::int64_t tokens, std::optional<std::uintptr_t> stream) {
            const nb::gil_scoped_release computing;
            if (stream) {
              self.graph.replay(tokens, reinterpret_cast<void*>(*stream));
            } else {
              self.graph.replay(tokens);
            }
          },
          "tokens"_a, "stream"_a.none());
}

template <class... Arguments>
void construct(Layer* self, const LayerConfig& config, const Arguments&... arguments) {
  const nb::gil_scoped_release waiting;
  new (self) Layer(config, arguments...);
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_batch(module);
  bind_graph(module);
  nb::class_<PackedExperts>(module, "PackedExperts",
                            R"(A rank's packed experts, as layers share them.

Of Layer.packed_experts; a Layer takes them as its weights, without a copy. The memory lives as long
as this object or a layer that was made with it.)");
  nb::class_<Layer>(module, "Layer")
      .def("__init__",
           [](Layer* self, const LayerConfig& config, const PythonWeights& weights,
              const Group& group, const LayerOptions& options) {
             construct(self, config, weights.weights, group, options);
           })
      .def("__init__",
           [](Layer* self, const LayerConfig& config, const CheckpointLayer& checkpoint,
              const Group& group, const LayerOptions& options) {
             construct(self, config, checkpoint.weights, group, options);
           })
      .def("__init__",
           [](Layer* self, const LayerConfig& config, const std::string& packed, const Group& group,
              const LayerOptions& options) {
             construct(self, config, std::filesystem::path(packed), group, options);
           })
      .def("__init__",
           [](Layer* self, const LayerConfig& config, const PackedExperts& packed,
              const Group& group,
              const LayerOptions& options) { construct(self, config, packed, group, options); })
      .def(
          "batch",
          [](nb::object self, std::int64_t tokens, const Group& group) {
            const Layer& layer = nb::cast<const Layer&>(self);
            return PythonBatch{layer.batch(tokens), place_of(group), layer.config(), self, {}};
          },
          "tokens"_a, "group"_a)
      .def("forward", &forward, "batch"_a, "y"_a, "execution"_a, "stream"_a.none() = nb::none())
      .def("wait",
           [](Layer& self) {
             const nb::gil_scoped_release waiting;
             self.wait();
           })
      .def("poll", &Layer::poll)
      .def("run", &run, "x"_a, "experts"_a, "weights"_a, "y"_a, "execution"_a)
      .def(
          "graph",
          [](Layer& self, nb::handle y, std::string_view execution, const Group& group) {
            const LayerConfig& config = self.config();
            const ArrayOut out(y, "y", Element::bf16, {config.max_tokens, config.hidden},
                               place_of(group));
            return PythonGraph{
                self.graph({.execution = parse_execution(execution), .y = out.span<BFloat16>()}),
                out};
          },
          "y"_a, "execution"_a, "group"_a, nb::keep_alive<0, 1>())
      .def("refresh",
           [](Layer& self, const PythonWeights& weights) {
             const nb::gil_scoped_release packing;
             self.refresh(weights.weights);
           })
      .def("refresh",
           [](Layer& self, const CheckpointLayer& checkpoint) {
             const nb::gil_scoped_release packing;
             self.refresh(checkpoint.weights);
           })
      .def(
          "save_packed",
          [](const Layer& self, const std::string& file) {
            const nb::gil_scoped_release writing;
            self.save_packed(file);
          },
          "file"_a)
      .def_prop_ro("packed_experts", &Layer::packed_experts)
      .def("explain", &Layer::explain)
      .def_prop_ro("config", [](const Layer& self) { return self.config(); })
      .def_prop_ro("report", [](const Layer& self) { return self.report(); });
}

}  // namespace megamoe::python
