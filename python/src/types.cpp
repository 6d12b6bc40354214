// LayerConfig, the report of a call, and the plan of a layer.
#include "megamoe/types.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "megamoe/layer.hpp"

#include "api/cuda_plan.hpp"
#include "api/group_state.hpp"
#include "api/layer_plan.hpp"
#include "base/integers.hpp"
#include "base/names.hpp"
#include "plan/plan.hpp"
#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr const char* kConfigDoc =
    R"(The shape and arithmetic of one layer, equal on all ranks of a group.

Attributes (all may be assigned):
    hidden: H, features of a token.
    intermediate: I, features between the two products; W1 is [2I, H], W2 is [H, I].
    experts: E, routed experts over all ranks.
    top_k: K, slots in a token's list, 1 to 32.
    max_tokens: capacity, tokens per rank and call.
    shared_experts: experts that every token of the rank visits with weight 1.
    recipe: "fp8_fp4", "fp8_fp8", "bf16_bf16", "bf16_fp4" or "bf16_fp8": the format of the
        activations, then of W1 and W2.
    activation: "swiglu", or "swiglu_oai" (gpt-oss).
    activation_limit: the clamp of the activation, or None; "swiglu_oai" uses 7 when None.
    shared_weights: "bf16", "fp4" or "fp8", the format of the shared experts' W1 and W2; or None: as
        the recipe's.)";

std::optional<WeightFormat> parse_optional_format(std::optional<std::string_view> name) {
  if (!name) return std::nullopt;
  return parse_weight_format(*name);
}

std::string repr(const LayerConfig& config) {
  const std::string limit =
      config.activation_limit ? fmt::format("{}", *config.activation_limit) : "None";
  const std::string shared =
      config.shared_weights ? fmt::format(", shared_weights='{}'", name_of(*config.shared_weights))
                            : "";
  return fmt::format(
      "LayerConfig(hidden={}, intermediate={}, experts={}, top_k={}, max_tokens={}, "
      "shared_experts={}, recipe='{}', activation='{}', activation_limit={}{})",
      config.hidden, config.intermediate, config.experts, config.top_k, config.max_tokens,
      config.shared_experts, name_of(config.recipe), name_of(config.activation), limit, shared);
}

void bind_config(nb::module_& module) {
  nb::class_<LayerConfig>(module, "LayerConfig", kConfigDoc)
      .def(
          "__init__",
          [](LayerConfig* self, std::int64_t hidden, std::int64_t intermediate,
             std::int64_t experts, std::int64_t top_k, std::int64_t max_tokens,
             std::int64_t shared_experts, std::string_view recipe, std::string_view activation,
             std::optional<float> activation_limit,
             std::optional<std::string_view> shared_weights) {
            new (self) LayerConfig{.hidden = hidden,
                                   .intermediate = intermediate,
                                   .experts = experts,
                                   .shared_experts = shared_experts,
                                   .top_k = top_k,
                                   .max_tokens = max_tokens,
                                   .recipe = parse_recipe(recipe),
                                   .activation = parse_activation(activation),
                                   .activation_limit = activation_limit,
                                   .shared_weights = parse_optional_format(shared_weights)};
          },
          nb::kw_only(), "hidden"_a, "intermediate"_a, "experts"_a, "top_k"_a, "max_tokens"_a,
          "shared_experts"_a = 0, "recipe"_a = "fp8_fp4", "activation"_a = "swiglu",
          "activation_limit"_a.none() = nb::none(), "shared_weights"_a.none() = nb::none())
      .def_rw("hidden", &LayerConfig::hidden)
      .def_rw("intermediate", &LayerConfig::intermediate)
      .def_rw("experts", &LayerConfig::experts)
      .def_rw("shared_experts", &LayerConfig::shared_experts)
      .def_rw("top_k", &LayerConfig::top_k)
      .def_rw("max_tokens", &LayerConfig::max_tokens)
      .def_prop_rw(
          "recipe", [](const LayerConfig& config) { return std::string(name_of(config.recipe)); },
          [](LayerConfig& config, std::string_view name) { config.recipe = parse_recipe(name); })
      .def_prop_rw(
          "activation",
          [](const LayerConfig& config) { return std::string(name_of(config.activation)); },
          [](LayerConfig& config, std::string_view name) {
            config.activation = parse_activation(name);
          })
      .def_rw("activation_limit", &LayerConfig::activation_limit, nb::arg().none())
      .def_prop_rw(
          "shared_weights",
          [](const LayerConfig& config) -> std::optional<std::string> {
            if (!config.shared_weights) return std::nullopt;
            return std::string(name_of(*config.shared_weights));
          },
          [](LayerConfig& config, std::optional<std::string_view> name) {
            config.shared_weights = parse_optional_format(name);
          },
          nb::arg().none())
      .def("copy", [](const LayerConfig& config) { return config; })
      .def("__repr__", &repr);
}

constexpr const char* kReportDoc = R"(What a call did at this rank.

Times are wall time of the rank in nanoseconds, busy times are sums over its workers.

Attributes:
    tokens: tokens of this rank.
    routes: (token, slot) pairs of this rank's tokens that have an expert.
    rows_per_expert: rows that each of this rank's own experts computed, then the shared ones.
    dispatch_ns, compute_ns, barrier_b_ns, combine_ns, total_ns: the phases of the call.
    pull_busy_ns, gemm1_busy_ns, gemm2_busy_ns: what the workers did meanwhile.
    pulled_bytes, pushed_bytes: tokens fetched and results sent, this rank's own included.
    weight_bytes: packed bytes of the experts that had rows.
    flops: 6 * H * I per row.)";

void bind_report(nb::module_& module) {
  nb::class_<CallReport>(module, "CallReport", kReportDoc)
      .def_ro("tokens", &CallReport::tokens)
      .def_ro("routes", &CallReport::routes)
      .def_ro("rows_per_expert", &CallReport::rows_per_expert)
      .def_ro("dispatch_ns", &CallReport::dispatch_ns)
      .def_ro("compute_ns", &CallReport::compute_ns)
      .def_ro("barrier_b_ns", &CallReport::barrier_b_ns)
      .def_ro("combine_ns", &CallReport::combine_ns)
      .def_ro("total_ns", &CallReport::total_ns)
      .def_ro("pull_busy_ns", &CallReport::pull_busy_ns)
      .def_ro("gemm1_busy_ns", &CallReport::gemm1_busy_ns)
      .def_ro("gemm2_busy_ns", &CallReport::gemm2_busy_ns)
      .def_ro("pulled_bytes", &CallReport::pulled_bytes)
      .def_ro("pushed_bytes", &CallReport::pushed_bytes)
      .def_ro("weight_bytes", &CallReport::weight_bytes)
      .def_ro("flops", &CallReport::flops)
      .def("__repr__", [](const CallReport& report) {
        return fmt::format("CallReport(tokens={}, routes={}, total_ns={}, flops={})", report.tokens,
                           report.routes, report.total_ns, report.flops);
      });
}

constexpr const char* kPlanDoc = R"(What would run on the CPU for a shape, before there is a layer.

Attributes:
    block_rows: rows of one expert that become ready together (BLOCK_M).
    gemm2_columns: output features of one GEMM-2 task.
    workers: threads of a fused or staged call, and of the combine of a split one.
    k1_workers, k2_workers: threads of the split's two halves.
    arena_bytes: symmetric memory per rank.
    region_bytes: the same by region.)";

void bind_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", kPlanDoc)
      .def_ro("block_rows", &Plan::block_rows)
      .def_ro("gemm2_columns", &Plan::gemm2_columns)
      .def_ro("workers", &Plan::workers)
      .def_ro("k1_workers", &Plan::k1_workers)
      .def_ro("k2_workers", &Plan::k2_workers)
      .def_prop_ro("arena_bytes", [](const Plan& plan) { return plan.arena.bytes; })
      .def_prop_ro("region_bytes",
                   [](const Plan& plan) {
                     std::map<std::string, std::int64_t> bytes;
                     for (const Region& region : plan.arena.regions) {
                       bytes[region.name] = region.bytes();
                     }
                     return bytes;
                   })
      .def("explain", &Plan::explain, "The plan in words and numbers, some thirty lines.")
      .def("__repr__", [](const Plan& plan) {
        return fmt::format("Plan(block_rows={}, workers={}, arena_bytes={})", plan.block_rows,
                           plan.workers, plan.arena.bytes);
      });
  module.def(
      "plan",
      [](const LayerConfig& config, std::int64_t ranks, const LayerOptions& options) {
        return plan_layer(config, ranks, options);
      },
      "config"_a, "ranks"_a, "options"_a);
}

/// Of one split call.
struct SplitPlan {
  std::int64_t block_rows;
  std::int64_t gemm2_tasks_per_block;
  std::int64_t k2_workers;
};

SplitPlan plan_split(const LayerConfig& config, const Group& group, const LayerOptions& options,
                     std::int64_t tokens) {
  if (const GpuRank* gpu = group.state().gpu()) {
    const device::CurrentDevice current = gpu->use();
    const sm90::GpuPlan plan =
        plan_cuda_layer(config, group.ranks(), options, gpu->share_of_multiprocessors())
            .of_call(tokens, Execution::split);
    return {plan.kernel.tokens, plan.gemm2_tasks_per_block, plan.k2_blocks};
  }
  const Plan plan = plan_layer(config, group.ranks(), options);
  return {plan.block_rows, ceil_div(config.hidden, plan.gemm2_columns), plan.k2_workers};
}

void bind_split_plan(nb::module_& module) {
  nb::class_<SplitPlan>(module, "SplitPlan")
      .def_ro("block_rows", &SplitPlan::block_rows)
      .def_ro("gemm2_tasks_per_block", &SplitPlan::gemm2_tasks_per_block)
      .def_ro("k2_workers", &SplitPlan::k2_workers);
  module.def("plan_split", &plan_split, "config"_a, "group"_a, "options"_a, "tokens"_a);
}

void bind_options(nb::module_& module) {
  using Count = std::optional<std::int64_t>;
  const auto none = nb::none();
  nb::class_<LayerOptions>(module, "LayerOptions")
      .def(
          "__init__",
          [](LayerOptions* self, Count workers, Count k1_workers, Count k2_workers,
             Count block_rows, const std::optional<std::string>& instruction_set) {
            LayerOptions options{.workers = workers,
                                 .k1_workers = k1_workers,
                                 .k2_workers = k2_workers,
                                 .block_rows = block_rows};
            if (instruction_set) options.instruction_set = parse_instruction_set(*instruction_set);
            new (self) LayerOptions(options);
          },
          nb::kw_only(), "workers"_a.none() = none, "k1_workers"_a.none() = none,
          "k2_workers"_a.none() = none, "block_rows"_a.none() = none,
          "instruction_set"_a.none() = none);
}

}  // namespace

void bind_types(nb::module_& module) {
  bind_config(module);
  bind_report(module);
  bind_options(module);
  bind_plan(module);
  bind_split_plan(module);
}

}  // namespace megamoe::python
