// Layers of checkpoint folders, and routers.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "megamoe/checkpoint.hpp"
#include "megamoe/router.hpp"

#include "base/check.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

std::string_view name_of(RouterScores scores) {
  switch (scores) {
    case RouterScores::softmax:
      return "softmax";
    case RouterScores::sigmoid:
      return "sigmoid";
    case RouterScores::sqrt_softplus:
      return "sqrt_softplus";
  }
  return "?";
}

RouterScores parse_scores(std::string_view name) {
  for (auto scores : {RouterScores::softmax, RouterScores::sigmoid, RouterScores::sqrt_softplus}) {
    if (name_of(scores) == name) return scores;
  }
  fail(ErrorCode::invalid_argument, "scores '{}': softmax, sigmoid or sqrt_softplus is wanted",
       name);
}

/// A small array of any float type and framework as float32 of NumPy; None stays None.
nb::object as_float32(nb::handle object, const char* what) {
  return nb::module_::import_("megamoe._arrays").attr("contiguous_float32")(object, what);
}

/// float32 values of a given shape; empty for None.
std::vector<float> floats_of(nb::handle object, const char* what,
                             std::initializer_list<std::int64_t> shape) {
  if (object.is_none()) return {};
  const ArrayIn array(as_float32(object, what), what);
  array.want(Element::f32, shape);
  const std::span<const float> values = array.span<float>();
  return {values.begin(), values.end()};
}

constexpr const char* kRouterDoc =
    R"(What a router does: hidden states to top-k experts and weights.

    logits = weight * x + bias; scores = f(logits); chosen are the top_k of scores + selection_bias,
    inside the best groups if there are several; weights are the unbiased scores of the chosen,
    renormalised if asked, times scaling.

A group's rank is the sum of its two best scores. Ties go to the lower id; a NaN score ranks below
every number.

Arguments (all by name; arrays of any float type and framework, which are copied):
    weight: [experts, hidden].
    top_k: experts per token.
    bias: [experts] or None, added to the logits.
    selection_bias: [experts] or None, added to the scores for the choice alone.
    scores: "softmax" (Mixtral, Qwen3, gpt-oss), "sigmoid" (DeepSeek-V3) or "sqrt_softplus"
        (DeepSeek-V4).
    renormalise: weights of a token sum to 1 before scaling.
    scaling: factor of the weights.
    groups, top_groups: groups of experts, and how many of them stay.)";

void make_router(RouterConfig* self, nb::handle weight, std::int64_t top_k, nb::handle bias,
                 nb::handle selection_bias, std::string_view scores, bool renormalise,
                 float scaling, std::int64_t groups, std::int64_t top_groups) {
  const nb::object floats = as_float32(weight, "weight");
  const ArrayIn matrix(floats, "weight");
  matrix.want_ndim({2});
  RouterConfig router;
  router.experts = matrix.size(0);
  router.hidden = matrix.size(1);
  router.top_k = top_k;
  router.scores = parse_scores(scores);
  router.renormalise = renormalise;
  router.scaling = scaling;
  router.groups = groups;
  router.top_groups = top_groups;
  router.weight = floats_of(floats, "weight", {router.experts, router.hidden});
  router.bias = floats_of(bias, "bias", {router.experts});
  router.selection_bias = floats_of(selection_bias, "selection_bias", {router.experts});
  new (self) RouterConfig(std::move(router));
}

void bind_router(nb::module_& module) {
  nb::class_<RouterConfig>(module, "RouterConfig", kRouterDoc)
      .def("__init__", &make_router, nb::kw_only(), "weight"_a, "top_k"_a,
           "bias"_a.none() = nb::none(), "selection_bias"_a.none() = nb::none(),
           "scores"_a = "softmax", "renormalise"_a = true, "scaling"_a = 1.0f, "groups"_a = 1,
           "top_groups"_a = 1)
      .def_ro("experts", &RouterConfig::experts)
      .def_ro("hidden", &RouterConfig::hidden)
      .def_ro("top_k", &RouterConfig::top_k)
      .def_prop_ro("scores",
                   [](const RouterConfig& self) { return std::string(name_of(self.scores)); })
      .def_ro("renormalise", &RouterConfig::renormalise)
      .def_ro("scaling", &RouterConfig::scaling)
      .def_ro("groups", &RouterConfig::groups)
      .def_ro("top_groups", &RouterConfig::top_groups)
      .def("__repr__", [](const RouterConfig& self) {
        return fmt::format("RouterConfig(experts={}, hidden={}, top_k={}, scores='{}')",
                           self.experts, self.hidden, self.top_k, name_of(self.scores));
      });
  module.def(
      "route",
      [](const RouterConfig& router, nb::handle x, nb::handle experts, nb::handle weights) {
        const ArrayIn input(x, "x");
        input.want(Element::bf16, {-1, router.hidden});
        input.want_place(kHost);
        input.want_contiguous();
        const ArrayOut ids(experts, "experts", Element::i64, {input.size(0), router.top_k});
        const ArrayOut values(weights, "weights", Element::f32, {input.size(0), router.top_k});
        const nb::gil_scoped_release computing;
        route(router, input.span<BFloat16>(), ids.span<std::int64_t>(), values.span<float>());
      },
      "router"_a, "x"_a, "experts"_a, "weights"_a);
}

}  // namespace

void bind_checkpoints(nb::module_& module) {
  bind_router(module);
  nb::class_<CheckpointLayer>(module, "CheckpointLayer", R"(One layer of a checkpoint folder.

Pass it as the weights of a Layer. Its weights are views into the mapped files.

Attributes:
    family: "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3" or "deepseek_v4".
    config: a LayerConfig, max_tokens as load_layer was asked; assign another to change it.
    router: the layer's own RouterConfig.
    note: what could not be kept as it is stored, in words; "" if all was.)")
      .def_ro("family", &CheckpointLayer::family)
      .def_rw("config", &CheckpointLayer::config)
      .def_ro("router", &CheckpointLayer::router)
      .def_ro("note", &CheckpointLayer::note)
      .def("__repr__", [](const CheckpointLayer& self) {
        return fmt::format("CheckpointLayer(family='{}', hidden={}, experts={})", self.family,
                           self.config.hidden, self.config.experts);
      });
  module.def(
      "load_layer",
      [](const std::string& directory, std::int64_t layer) {
        const nb::gil_scoped_release reading;
        return load_layer(directory, layer);
      },
      "directory"_a, "layer"_a);
}

}  // namespace megamoe::python
