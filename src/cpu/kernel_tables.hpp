// The tables behind vector_kernels(), and the choice between them with the machine as an argument.
#pragma once

#include <array>

#include "cpu/kernels.hpp"

namespace megamoe {

const VectorKernels* scalar_kernels();
/// Null in a build for a processor other than x86. Calling the functions of a table that the
/// machine lacks is illegal instructions.
const VectorKernels* avx2_kernels();
const VectorKernels* avx512_kernels();

/// Which sets a machine has, by the value of InstructionSet.
using InstructionSetFlags = std::array<bool, 3>;

InstructionSetFlags machine_instruction_sets();
/// What the processor has of avx2 and avx512 (all of the extensions that those tables use) and the
/// operating system saves.
InstructionSetFlags vector_instruction_sets();

InstructionSet best_instruction_set(const InstructionSetFlags& machine);
const VectorKernels& vector_kernels(InstructionSet set, const InstructionSetFlags& machine);

}  // namespace megamoe
