// The vector kernels, compiled once for AVX2 and once for AVX-512 (F, BW, DQ, VL) by Highway's
// target pragmas: the file needs no -m flags, and no code outside the two namespaces uses their
// instructions.
#include <hwy/detect_compiler_arch.h>

#include "cpu/kernel_tables.hpp"

#if HWY_ARCH_X86

// clang-format off: the order matters.
// A scalar target stays enabled because Highway wants one that every machine has; it compiles to
// nothing here. "All attainable" keeps the AVX2 table in a build with -march=native.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3))
#undef HWY_COMPILE_ALL_ATTAINABLE
#define HWY_COMPILE_ALL_ATTAINABLE
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/vector/accumulate-inl.hpp"
#include "cpu/vector/epilogues-inl.hpp"
#include "cpu/vector/panel-inl.hpp"
// clang-format on

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {

constexpr VectorKernels kTable{
    .instruction_set = HWY_TARGET == HWY_AVX3 ? InstructionSet::avx512 : InstructionSet::avx2,
    .row_group = kRowGroup,
    .load_panel = load_panel,
    .accumulate = accumulate,
    .activate = activate,
    .quantise = quantise,
    .finish_row = finish_row,
    .combine = combine};

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();
#endif  // AVX2 or AVX-512

#if HWY_ONCE
namespace megamoe {

const VectorKernels* avx2_kernels() {
  return &N_AVX2::kTable;
}
const VectorKernels* avx512_kernels() {
  return &N_AVX3::kTable;
}

InstructionSetFlags vector_instruction_sets() {
  const std::int64_t targets = hwy::SupportedTargets();
  InstructionSetFlags flags{};
  flags[static_cast<std::size_t>(InstructionSet::avx2)] = (targets & HWY_AVX2) != 0;
  flags[static_cast<std::size_t>(InstructionSet::avx512)] = (targets & HWY_AVX3) != 0;
  return flags;
}

}  // namespace megamoe
#endif  // HWY_ONCE

#else  // no x86

namespace megamoe {

const VectorKernels* avx2_kernels() {
  return nullptr;
}
const VectorKernels* avx512_kernels() {
  return nullptr;
}
InstructionSetFlags vector_instruction_sets() {
  return {};
}

}  // namespace megamoe

#endif  // HWY_ARCH_X86
