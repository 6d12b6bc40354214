// The kernels as plain loops: every machine has them, and they say what the vector kernels do.
#include <cstring>

#include "cpu/kernel_tables.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

constexpr std::int64_t kRowGroup = 4;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float panel_value(const PanelSource& source, std::int64_t row, std::int64_t column) {
  const std::byte* values = source.values + row * source.row_stride_bytes;
  if (source.format == PanelFormat::bf16) return to_float(load<BFloat16>(values + 2 * column));
  const float value = e4m3_to_float(load<std::uint8_t>(values + column));
  const std::byte* scales = source.scales + row * source.scale_row_stride_bytes;
  switch (source.format) {
    case PanelFormat::e4m3_ue8m0_32:
      return value * ue8m0_to_float(load<std::uint8_t>(scales + column / 32));
    case PanelFormat::e4m3_f32_128:
      return value * load<float>(scales + column / 128 * 4);
    case PanelFormat::e4m3_ue8m0_128:
      return value * ue8m0_to_float(load<std::uint8_t>(scales + column / 128));
    case PanelFormat::bf16:
      break;
  }
  return 0.0f;
}

void load_panel(const PanelSource& source, float* panel) {
  for (std::int64_t first = 0; first < source.rows; first += kRowGroup) {
    const std::int64_t rows = min64(kRowGroup, source.rows - first);
    float* group = panel + first * source.columns;
    for (std::int64_t c = 0; c < source.columns; ++c) {
      const std::int64_t column = source.first_column + c;
      for (std::int64_t r = 0; r < rows; ++r) {
        group[c * rows + r] =
            column < source.valid_columns ? panel_value(source, first + r, column) : 0.0f;
      }
    }
  }
}

float weight_value(WeightFormat format, std::uint32_t word, std::int64_t column_in_word) {
  const auto shift = static_cast<unsigned>(column_in_word * (32 / columns_per_word(format)));
  const std::uint32_t low = word >> shift;
  switch (format) {
    case WeightFormat::fp4:
      return e2m1_to_float(static_cast<std::uint8_t>(low & 0xFu));
    case WeightFormat::fp8:
      return e4m3_to_float(static_cast<std::uint8_t>(low));
    case WeightFormat::bf16:
      return to_float(BFloat16{static_cast<std::uint16_t>(low)});
  }
  return 0.0f;
}

float weight_scale(WeightFormat format, const std::byte* chunk, std::int64_t lane,
                   std::int64_t column) {
  const std::byte* scale = chunk + scale_offset(format, lane, column);
  if (format == WeightFormat::fp4) return ue8m0_to_float(load<std::uint8_t>(scale));
  return load<float>(scale);
}

void decode_chunk(WeightFormat format, const std::byte* chunk, float* weights) {
  const std::int64_t step = columns_per_word(format);
  for (std::int64_t column = 0; column < kChunkColumns; ++column) {
    for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
      const auto word = load<std::uint32_t>(chunk + word_offset(format, lane, column));
      weights[column * kStripLanes + lane] = weight_value(format, word, column % step);
    }
  }
}

/// sums[lane] += x * weights for one row: `pitch` floats between the columns of x.
void multiply_chunk(WeightFormat format, const std::byte* chunk, const float* weights,
                    const float* x, std::int64_t pitch, float* sums) {
  const std::int64_t group_columns = format == WeightFormat::fp4 ? 32 : kChunkColumns;
  for (std::int64_t first = 0; first < kChunkColumns; first += group_columns) {
    float partial[kStripLanes] = {};
    if (format == WeightFormat::bf16) std::memcpy(partial, sums, sizeof partial);
    for (std::int64_t column = first; column < first + group_columns; ++column) {
      const float* w = weights + column * kStripLanes;
      for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
        partial[lane] += x[column * pitch] * w[lane];
      }
    }
    for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
      sums[lane] = format == WeightFormat::bf16
                       ? partial[lane]
                       : sums[lane] + partial[lane] * weight_scale(format, chunk, lane, first);
    }
  }
}

void accumulate(const AccumulateArguments& a) {
  float weights[kChunkColumns * kStripLanes];
  const std::int64_t padded_rows = round_up(a.rows, kRowGroup);
  for (std::int64_t strip = 0; strip < a.strips; ++strip) {
    for (std::int64_t c = 0; c < a.chunks; ++c) {
      const std::byte* chunk = a.weights + strip * a.strip_stride_bytes + c * chunk_bytes(a.format);
      decode_chunk(a.format, chunk, weights);
      for (std::int64_t row = 0; row < a.rows; ++row) {
        const std::int64_t first = row / kRowGroup * kRowGroup;
        const std::int64_t pitch = min64(kRowGroup, a.rows - first);
        const float* x = a.panel + (first * a.chunks + c * pitch) * kChunkColumns + (row - first);
        multiply_chunk(a.format, chunk, weights, x, pitch,
                       a.sums + (strip * padded_rows + row) * kStripLanes);
      }
    }
  }
}

float gemm1_result(float sum, const float* bias, std::int64_t lane) {
  return to_float(to_bf16(bias == nullptr ? sum : sum + bias[lane]));
}

void activate(const ActivateArguments& a) {
  for (std::int64_t strip = 0; strip < a.strips; ++strip) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const float* sums = a.sums + (strip * a.padded_rows + row) * kStripLanes;
      float* out = a.activations + row * a.activation_stride + strip * kHalfStripLanes;
      for (std::int64_t lane = 0; lane < kHalfStripLanes; ++lane) {
        const std::int64_t column = strip * kHalfStripLanes + lane;
        const float gate = gemm1_result(sums[lane], a.gate_bias, column);
        const float up = gemm1_result(sums[kHalfStripLanes + lane], a.up_bias, column);
        out[lane] = activate(a.rule, gate, up) * a.row_weights[row];
      }
    }
  }
}

void quantise(const QuantiseArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    std::uint8_t bytes[kChunkColumns];
    std::uint8_t scale = 0;
    quantise_e4m3_group(a.values + row * a.value_stride, a.columns, bytes, scale);
    std::memcpy(a.bytes + row * a.row_stride_bytes, bytes, static_cast<std::size_t>(a.columns));
    a.scales[row * a.scale_row_stride_bytes] = std::byte{scale};
  }
}

void finish_row(const FinishRowArguments& a) {
  for (std::int64_t c = 0; c < a.columns; ++c) {
    const float sum = a.sums[c / kStripLanes * a.strip_stride + c % kStripLanes];
    a.out[c] = to_bf16(a.bias == nullptr ? sum : sum + a.weight * a.bias[c]);
  }
}

void combine(const CombineArguments& a) {
  for (std::int64_t c = 0; c < a.columns; ++c) {
    float sum = 0.0f;
    for (std::int64_t slot = 0; slot < a.slot_count; ++slot) sum += to_float(a.slots[slot][c]);
    a.y[c] = to_bf16(sum);
  }
}

constexpr VectorKernels kTable{.instruction_set = InstructionSet::scalar,
                               .row_group = kRowGroup,
                               .load_panel = load_panel,
                               .accumulate = accumulate,
                               .activate = activate,
                               .quantise = quantise,
                               .finish_row = finish_row,
                               .combine = combine};

}  // namespace

const VectorKernels* scalar_kernels() {
  return &kTable;
}

}  // namespace megamoe
