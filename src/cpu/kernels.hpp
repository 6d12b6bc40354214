// The vector kernels of the CPU engine: the algorithm once, one table of functions per instruction
// set.
//
// Numbers. A panel holds the left operand exactly, as f32 (an FP8 value times its scale; with f32
// scales the product is rounded once). For each output, products and sums run in ascending columns:
// - fp4: over the 32 columns of a scale partial = fma(x, w, partial) from 0; then
//   sum = fma(partial, scale, sum)
// - fp8: the same over the 128 columns of a scale
// - bf16: sum = fma(x, w, sum)
//
// The order is the same for one row and for many, for one strip and for many, and for any cut of
// the columns into calls. The scalar table multiplies and adds without fma: its bits differ from
// the vector tables', whose bits agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megamoe/types.hpp"

#include "layout/weight_strips.hpp"
#include "numerics/activation.hpp"

namespace megamoe {

enum class PanelFormat { bf16, e4m3_ue8m0_32, e4m3_f32_128, e4m3_ue8m0_128 };

/// Rows to load into a panel.
struct PanelSource {
  PanelFormat format;
  const std::byte* values;  ///< first row, column 0
  std::int64_t row_stride_bytes;
  const std::byte* scales;  ///< first row, column 0; null for bf16
  std::int64_t scale_row_stride_bytes;
  std::int64_t rows;
  std::int64_t first_column;   ///< a multiple of 128
  std::int64_t columns;        ///< a multiple of 128: what the panel gets
  std::int64_t valid_columns;  ///< of the whole matrix; the panel is zero beyond, whatever memory
                               ///< holds there
};

/// sums[strip][row][lane] += panel * weights, for the columns of the panel.
struct AccumulateArguments {
  WeightFormat format;
  const std::byte* weights;         ///< first strip, at the panel's first chunk
  std::int64_t strip_stride_bytes;  ///< between strips
  std::int64_t strips;
  std::int64_t chunks;  ///< of 128 columns: the panel's columns / 128
  const float* panel;
  std::int64_t rows;
  float* sums;  ///< [strips][padded_rows(rows)][32]; the padding is neither read nor written
};

/// GEMM-1 sums (a strip's first half is gate, its second half up) to activations:
/// activation = act(bf16(gate + gate_bias), bf16(up + up_bias)) * weight, in f32.
struct ActivateArguments {
  const float* sums;  ///< [strips][padded_rows][32]
  std::int64_t strips;
  std::int64_t padded_rows;
  std::int64_t rows;
  const float* gate_bias;  ///< null, or 16 per strip
  const float* up_bias;    ///< likewise
  const float* row_weights;
  ActivationRule rule;
  float* activations;  ///< [rows][activation_stride], 16 * strips written
  std::int64_t activation_stride;
};

/// One group of `columns` (at most 128) activations per row to E4M3 with a UE8M0 scale
/// (numerics/block_scale.hpp has the rule).
struct QuantiseArguments {
  const float* values;  ///< [rows][value_stride]
  std::int64_t value_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::byte* bytes;  ///< first row
  std::int64_t row_stride_bytes;
  std::byte* scales;  ///< first row
  std::int64_t scale_row_stride_bytes;
};

/// One row of GEMM-2 sums to its destination: out[c] = bf16(sum[c] + weight * bias[c]).
struct FinishRowArguments {
  const float* sums;          ///< this row in strip 0
  std::int64_t strip_stride;  ///< floats between strips
  std::int64_t columns;
  const float* bias;  ///< null, or one per column
  float weight;
  BFloat16* out;
};

/// y[c] = bf16(sum over slots in order, in f32). `slots` may be 0: zeros.
struct CombineArguments {
  const BFloat16* const* slots;
  std::int64_t slot_count;
  std::int64_t columns;
  BFloat16* y;
};

struct VectorKernels {
  InstructionSet instruction_set;
  /// Rows that share a group of a panel: what the accumulate kernel keeps in registers at once.
  std::int64_t row_group;

  /// panel[group][column][row in group], for accumulate of the same table: groups of row_group rows
  /// one after another, the last with the rows that are left and no padding. Writes rows * columns
  /// floats. Reads the valid columns of the rows, and the scales that they have, alone.
  void (*load_panel)(const PanelSource& source, float* panel);
  void (*accumulate)(const AccumulateArguments& arguments);
  void (*activate)(const ActivateArguments& arguments);
  void (*quantise)(const QuantiseArguments& arguments);
  void (*finish_row)(const FinishRowArguments& arguments);
  void (*combine)(const CombineArguments& arguments);

  std::int64_t padded_rows(std::int64_t rows) const { return round_up(rows, row_group); }
};

/// The best set that this machine has.
InstructionSet best_instruction_set();
bool has_instruction_set(InstructionSet set);

/// The table of one set. Throws Error{unsupported} that names the set, and those the machine has,
/// if it lacks it.
const VectorKernels& vector_kernels(InstructionSet set);

}  // namespace megamoe
