// The kernels as plain loops, and the choice of a table.
#include <cmath>

#include "cpu/kernels.hpp"
#include "mqa_logits/kernels.hpp"
#include "numerics/e4m3.hpp"

namespace megamoe::mqa {
namespace {

void decode(const std::byte* bytes, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = e4m3_to_float(std::to_integer<std::uint8_t>(bytes[i]));
  }
}

void load_panel(const std::byte* keys, std::int64_t count, std::int64_t head_dim, float* panel) {
  for (std::int64_t d = 0; d < head_dim; ++d) {
    for (std::int64_t key = 0; key < kTileKeys; ++key) {
      panel[d * kTileKeys + key] =
          key < count ? e4m3_to_float(std::to_integer<std::uint8_t>(keys[key * head_dim + d]))
                      : 0.0f;
    }
  }
}

void row_logits(const RowArguments& a) {
  for (std::int64_t key = 0; key < kTileKeys; ++key) {
    float sum = 0;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      float dot = 0;
      for (std::int64_t d = 0; d < a.head_dim; ++d) {
        dot = std::fma(a.q[h * a.head_dim + d], a.panel[d * kTileKeys + key], dot);
      }
      sum = std::fma(a.weights[h], dot < 0 ? 0.0f : dot, sum);
    }
    a.logits[key] = sum * a.scales[key];
  }
}

constexpr CpuKernels kTable{.instruction_set = InstructionSet::scalar,
                            .load_panel = load_panel,
                            .decode = decode,
                            .row_logits = row_logits};

}  // namespace

const CpuKernels* scalar_mqa_kernels() {
  return &kTable;
}

const CpuKernels& cpu_kernels(InstructionSet set) {
  // Refuses what the machine lacks.
  switch (vector_kernels(set).instruction_set) {
    case InstructionSet::avx2:
      return *avx2_mqa_kernels();
    case InstructionSet::avx512:
      return *avx512_mqa_kernels();
    case InstructionSet::scalar:
      break;
  }
  return kTable;
}

}  // namespace megamoe::mqa
