#include "base/names.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/check.hpp"

namespace megamoe {
namespace {

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<Recipe, 5> kRecipes{{{Recipe::fp8_fp4, "fp8_fp4"},
                                     {Recipe::fp8_fp8, "fp8_fp8"},
                                     {Recipe::bf16_bf16, "bf16_bf16"},
                                     {Recipe::bf16_fp4, "bf16_fp4"},
                                     {Recipe::bf16_fp8, "bf16_fp8"}}};
constexpr Names<WeightFormat, 3> kWeightFormats{
    {{WeightFormat::bf16, "bf16"}, {WeightFormat::fp4, "fp4"}, {WeightFormat::fp8, "fp8"}}};
constexpr Names<Activation, 2> kActivations{
    {{Activation::swiglu, "swiglu"}, {Activation::swiglu_oai, "swiglu_oai"}}};
constexpr Names<Execution, 3> kExecutions{
    {{Execution::fused, "fused"}, {Execution::split, "split"}, {Execution::staged, "staged"}}};
constexpr Names<InstructionSet, 3> kInstructionSets{{{InstructionSet::scalar, "scalar"},
                                                     {InstructionSet::avx2, "avx2"},
                                                     {InstructionSet::avx512, "avx512"}}};
constexpr Names<Backend, 3> kBackends{
    {{Backend::automatic, "auto"}, {Backend::cpu, "cpu"}, {Backend::cuda, "cuda"}}};

template <class Enum, std::size_t N>
std::string_view name_in(const Names<Enum, N>& names, Enum value) {
  for (const auto& [entry, name] : names) {
    if (entry == value) return name;
  }
  fail(ErrorCode::invalid_argument, "{} is no value of this enumeration", static_cast<int>(value));
}

template <class Enum, std::size_t N>
Enum parse_in(const Names<Enum, N>& names, std::string_view what, std::string_view text) {
  for (const auto& [value, name] : names) {
    if (name == text) return value;
  }
  std::vector<std::string_view> known;
  for (const auto& entry : names) known.push_back(entry.second);
  fail(ErrorCode::invalid_argument, "unknown {} '{}': one of {} is wanted", what, text,
       fmt::join(known, ", "));
}

}  // namespace

std::string_view name_of(Recipe recipe) {
  return name_in(kRecipes, recipe);
}
std::string_view name_of(WeightFormat format) {
  return name_in(kWeightFormats, format);
}
std::string_view name_of(Activation activation) {
  return name_in(kActivations, activation);
}
std::string_view name_of(Execution execution) {
  return name_in(kExecutions, execution);
}
std::string_view name_of(InstructionSet set) {
  return name_in(kInstructionSets, set);
}
std::string_view name_of(Backend backend) {
  return name_in(kBackends, backend);
}

Recipe parse_recipe(std::string_view name) {
  return parse_in(kRecipes, "recipe", name);
}
WeightFormat parse_weight_format(std::string_view name) {
  return parse_in(kWeightFormats, "weight format", name);
}
Activation parse_activation(std::string_view name) {
  return parse_in(kActivations, "activation", name);
}
Execution parse_execution(std::string_view name) {
  return parse_in(kExecutions, "execution", name);
}
InstructionSet parse_instruction_set(std::string_view name) {
  return parse_in(kInstructionSets, "instruction set", name);
}
Backend parse_backend(std::string_view name) {
  return parse_in(kBackends, "backend", name);
}

}  // namespace megamoe
