// The names of the public enumerations, as the command line and the messages spell them.
#pragma once

#include <string_view>

#include "megamoe/types.hpp"

namespace megamoe {

std::string_view name_of(Recipe recipe);
std::string_view name_of(WeightFormat format);
std::string_view name_of(Activation activation);
std::string_view name_of(Execution execution);
std::string_view name_of(InstructionSet instruction_set);
/// "auto", "cpu", "cuda".
std::string_view name_of(Backend backend);

/// The inverse of name_of. Throws Error{invalid_argument} that lists the names there are.
Recipe parse_recipe(std::string_view name);
WeightFormat parse_weight_format(std::string_view name);
Activation parse_activation(std::string_view name);
Execution parse_execution(std::string_view name);
InstructionSet parse_instruction_set(std::string_view name);
Backend parse_backend(std::string_view name);

}  // namespace megamoe
