#include "cpu/kernels.hpp"

#include <string>

#include "base/check.hpp"
#include "base/names.hpp"
#include "cpu/kernel_tables.hpp"

namespace megamoe {
namespace {

constexpr std::array kBestFirst{InstructionSet::avx512, InstructionSet::avx2,
                                InstructionSet::scalar};

bool has(const InstructionSetFlags& machine, InstructionSet set) {
  return machine[static_cast<std::size_t>(set)];
}

const VectorKernels* table(InstructionSet set) {
  switch (set) {
    case InstructionSet::scalar:
      return scalar_kernels();
    case InstructionSet::avx2:
      return avx2_kernels();
    case InstructionSet::avx512:
      return avx512_kernels();
  }
  return nullptr;
}

}  // namespace

InstructionSetFlags machine_instruction_sets() {
  // Asked once: in a virtual machine each cpuid instruction costs tens of microseconds.
  static const InstructionSetFlags kMachine = [] {
    InstructionSetFlags machine = vector_instruction_sets();
    machine[static_cast<std::size_t>(InstructionSet::scalar)] = true;
    return machine;
  }();
  return kMachine;
}

InstructionSet best_instruction_set(const InstructionSetFlags& machine) {
  for (const InstructionSet set : kBestFirst) {
    if (has(machine, set)) return set;
  }
  return InstructionSet::scalar;
}

const VectorKernels& vector_kernels(InstructionSet set, const InstructionSetFlags& machine) {
  const VectorKernels* found = has(machine, set) ? table(set) : nullptr;
  if (found != nullptr) return *found;
  std::string present;
  for (const InstructionSet other : kBestFirst) {
    if (!has(machine, other)) continue;
    if (!present.empty()) present += ", ";
    present += name_of(other);
  }
  fail(
      ErrorCode::unsupported,
      "the instruction set {} is wanted, and this machine has {}: choose one of these, or none for "
      "the best",
      name_of(set), present);
}

InstructionSet best_instruction_set() {
  return best_instruction_set(machine_instruction_sets());
}

bool has_instruction_set(InstructionSet set) {
  return has(machine_instruction_sets(), set);
}

const VectorKernels& vector_kernels(InstructionSet set) {
  return vector_kernels(set, machine_instruction_sets());
}

}  // namespace megamoe
