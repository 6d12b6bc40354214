#include "api/c_translate.hpp"

namespace megamoe::c {
namespace {

/// `last` is the enumeration's last name; both count from 0 in the same order.
template <class Cpp, class C>
Cpp to_enum(C value, C last, const char* name) {
  const auto number = static_cast<std::int64_t>(value);
  check_argument(number >= 0 && number <= static_cast<std::int64_t>(last),
                 "{} is {}: 0 to {} have a name in megamoe.h", name, number,
                 static_cast<int>(last));
  return static_cast<Cpp>(number);
}

template <class Cpp, class C>
constexpr bool same(Cpp cpp, C c) {
  return static_cast<int>(cpp) == static_cast<int>(c);
}
static_assert(same(Recipe::fp8_fp4, MEGAMOE_FP8_FP4) && same(Recipe::fp8_fp8, MEGAMOE_FP8_FP8) &&
              same(Recipe::bf16_bf16, MEGAMOE_BF16_BF16) &&
              same(Recipe::bf16_fp4, MEGAMOE_BF16_FP4) && same(Recipe::bf16_fp8, MEGAMOE_BF16_FP8));
static_assert(same(Activation::swiglu, MEGAMOE_SWIGLU) &&
              same(Activation::swiglu_oai, MEGAMOE_SWIGLU_OAI));
static_assert(same(Execution::fused, MEGAMOE_FUSED) && same(Execution::split, MEGAMOE_SPLIT) &&
              same(Execution::staged, MEGAMOE_STAGED));
static_assert(same(Backend::automatic, MEGAMOE_AUTOMATIC) && same(Backend::cpu, MEGAMOE_CPU) &&
              same(Backend::cuda, MEGAMOE_CUDA));
static_assert(same(WeightFormat::bf16, MEGAMOE_WEIGHTS_BF16) &&
              same(WeightFormat::fp4, MEGAMOE_WEIGHTS_FP4) &&
              same(WeightFormat::fp8, MEGAMOE_WEIGHTS_FP8));

static_assert(same(WeightFormat::bf16, MEGAMOE_SHARED_BF16 - 1) &&
              same(WeightFormat::fp4, MEGAMOE_SHARED_FP4 - 1) &&
              same(WeightFormat::fp8, MEGAMOE_SHARED_FP8 - 1));

std::optional<std::int64_t> unless_zero(std::int64_t value) {
  if (value == 0) return std::nullopt;
  return value;
}

std::optional<InstructionSet> to_instruction_set(megamoe_instruction_set set) {
  switch (set) {
    case MEGAMOE_BEST_INSTRUCTION_SET:
      return std::nullopt;
    case MEGAMOE_SCALAR:
      return InstructionSet::scalar;
    case MEGAMOE_AVX2:
      return InstructionSet::avx2;
    case MEGAMOE_AVX512:
      return InstructionSet::avx512;
  }
  fail(ErrorCode::invalid_argument, "instruction_set is {}: 0 to {} have a name in megamoe.h",
       static_cast<int>(set), static_cast<int>(MEGAMOE_AVX512));
}

std::optional<WeightFormat> to_shared_weights(megamoe_shared_weights format) {
  const auto number = to_enum<int>(format, MEGAMOE_SHARED_FP8, "shared_weights");
  if (number == MEGAMOE_SHARED_AS_RECIPE) return std::nullopt;
  return static_cast<WeightFormat>(number - 1);
}

megamoe_shared_weights from_shared_weights(std::optional<WeightFormat> format) {
  if (!format) return MEGAMOE_SHARED_AS_RECIPE;
  return static_cast<megamoe_shared_weights>(static_cast<int>(*format) + 1);
}

MatrixView to_matrix(const megamoe_matrix& matrix) {
  return {.format = to_enum<WeightFormat>(matrix.format, MEGAMOE_WEIGHTS_FP8, "a matrix's format"),
          .rows = matrix.rows,
          .columns = matrix.columns,
          .values = static_cast<const std::byte*>(matrix.values),
          .row_stride_bytes = matrix.row_stride_bytes,
          .scales = static_cast<const std::byte*>(matrix.scales),
          .scale_row_stride_bytes = matrix.scale_row_stride_bytes};
}

std::vector<float> to_bias(const float* bias, const megamoe_matrix& matrix) {
  if (bias == nullptr) return {};
  check_argument(matrix.rows >= 0, "a matrix has {} rows: a positive number is wanted",
                 matrix.rows);
  return {bias, bias + matrix.rows};
}

std::vector<ExpertWeights> to_experts(const megamoe_expert* experts, std::size_t count,
                                      const char* name) {
  if (count > 0) required(experts, name);
  std::vector<ExpertWeights> result;
  result.reserve(count);
  for (std::size_t e = 0; e < count; ++e) {
    const megamoe_expert& expert = experts[e];
    result.push_back({.gate = to_matrix(expert.gate),
                      .up = to_matrix(expert.up),
                      .down = to_matrix(expert.down),
                      .gate_bias = to_bias(expert.gate_bias, expert.gate),
                      .up_bias = to_bias(expert.up_bias, expert.up),
                      .down_bias = to_bias(expert.down_bias, expert.down)});
  }
  return result;
}

}  // namespace

LayerConfig to_config(const megamoe_layer_config& config) {
  LayerConfig result{
      .hidden = config.hidden,
      .intermediate = config.intermediate,
      .experts = config.experts,
      .shared_experts = config.shared_experts,
      .top_k = config.top_k,
      .max_tokens = config.max_tokens,
      .recipe = to_enum<Recipe>(config.recipe, MEGAMOE_BF16_FP8, "recipe"),
      .activation = to_enum<Activation>(config.activation, MEGAMOE_SWIGLU_OAI, "activation")};
  if (config.activation_limit != 0) result.activation_limit = config.activation_limit;
  result.shared_weights = to_shared_weights(config.shared_weights);
  return result;
}

megamoe_layer_config from_config(const LayerConfig& config) {
  return {.hidden = config.hidden,
          .intermediate = config.intermediate,
          .experts = config.experts,
          .shared_experts = config.shared_experts,
          .top_k = config.top_k,
          .max_tokens = config.max_tokens,
          .recipe = static_cast<megamoe_recipe>(config.recipe),
          .activation = static_cast<megamoe_activation>(config.activation),
          .activation_limit = config.activation_limit.value_or(0.0f),
          .shared_weights = from_shared_weights(config.shared_weights)};
}

LayerOptions to_options(const megamoe_layer_options* options) {
  if (options == nullptr) return {};
  return {.workers = unless_zero(options->workers),
          .k1_workers = unless_zero(options->k1_workers),
          .k2_workers = unless_zero(options->k2_workers),
          .block_rows = unless_zero(options->block_rows),
          .instruction_set = to_instruction_set(options->instruction_set),
          .bind_threads =
              options->bind_threads == 0 ? std::nullopt : std::optional(options->bind_threads > 0)};
}

LayerWeights to_weights(const megamoe_layer_weights& weights) {
  return {.experts = to_experts(weights.experts, weights.expert_count, "weights->experts"),
          .shared = to_experts(weights.shared, weights.shared_count, "weights->shared"),
          .owner = nullptr};
}

Execution to_execution(megamoe_execution execution) {
  return to_enum<Execution>(execution, MEGAMOE_STAGED, "execution");
}

Backend to_backend(megamoe_backend backend) {
  return to_enum<Backend>(backend, MEGAMOE_CUDA, "backend");
}

megamoe_backend from_backend(Backend backend) {
  return static_cast<megamoe_backend>(backend);
}

megamoe_report from_report(const CallReport& report) {
  return {.tokens = report.tokens,
          .routes = report.routes,
          .rows_per_expert = report.rows_per_expert.data(),
          .rows_per_expert_count = report.rows_per_expert.size(),
          .dispatch_ns = report.dispatch_ns,
          .compute_ns = report.compute_ns,
          .barrier_b_ns = report.barrier_b_ns,
          .combine_ns = report.combine_ns,
          .total_ns = report.total_ns,
          .pull_busy_ns = report.pull_busy_ns,
          .gemm1_busy_ns = report.gemm1_busy_ns,
          .gemm2_busy_ns = report.gemm2_busy_ns,
          .pulled_bytes = report.pulled_bytes,
          .pushed_bytes = report.pushed_bytes,
          .weight_bytes = report.weight_bytes,
          .flops = report.flops};
}

}  // namespace megamoe::c
