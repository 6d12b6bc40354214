// Row-major FP8 or bf16 rows into panels.
#if defined(MEGAMOE_CPU_VECTOR_PANEL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGAMOE_CPU_VECTOR_PANEL_INL
#undef MEGAMOE_CPU_VECTOR_PANEL_INL
#else
#define MEGAMOE_CPU_VECTOR_PANEL_INL
#endif

#include "cpu/vector/accumulate-inl.hpp"
#include "numerics/ue8m0.hpp"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t bytes_per_value(PanelFormat format) {
  return format == PanelFormat::bf16 ? 2 : 1;
}

inline constexpr std::int64_t panel_scale_columns(PanelFormat format) {
  return format == PanelFormat::e4m3_ue8m0_32 ? 32 : 128;
}

/// The scale of group `group` of a row whose scales begin at `scales`.
HWY_INLINE float panel_scale(PanelFormat format, const std::byte* scales, std::int64_t group) {
  if (format == PanelFormat::e4m3_f32_128) {
    float scale;
    std::memcpy(&scale, scales + 4 * group, sizeof scale);
    return scale;
  }
  return ue8m0_to_float(std::to_integer<std::uint8_t>(scales[group]));
}

/// `columns` columns (a multiple of kLanes) with one scale.
HWY_INLINE void load_scaled_e4m3(const std::byte* values, std::int64_t columns, float scale,
                                 float* to) {
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    store(hn::Mul(e4m3_bytes_to_floats(load_bytes(values + c)), set(scale)), to + c);
  }
}

/// 128 columns of one row from `first` on, of which `valid` are read; the rest becomes zero.
HWY_INLINE void load_row(const PanelSource& source, std::int64_t row, std::int64_t first,
                         std::int64_t valid, float* to) {
  const std::int64_t value_bytes = bytes_per_value(source.format);
  const std::byte* values = source.values + row * source.row_stride_bytes + first * value_bytes;
  std::byte whole[2 * kChunkColumns];
  if (valid < kChunkColumns) {
    std::memset(whole, 0, sizeof whole);
    std::memcpy(whole, values, static_cast<std::size_t>(valid * value_bytes));
    values = whole;
  }
  if (source.format == PanelFormat::bf16) {
    for (std::int64_t c = 0; c < kChunkColumns; c += kLanes) {
      store(load_bf16(values + 2 * c), to + c);
    }
    return;
  }
  const std::int64_t step = panel_scale_columns(source.format);
  const std::byte* scales = source.scales + row * source.scale_row_stride_bytes;
  for (std::int64_t c = 0; c < valid; c += step) {
    load_scaled_e4m3(values + c, step, panel_scale(source.format, scales, (first + c) / step),
                     to + c);
  }
  // A NaN scale has made NaN of the zeros.
  std::memset(to + valid, 0, static_cast<std::size_t>(kChunkColumns - valid) * sizeof(float));
}

/// kLanes columns of four rows, 128 floats apart, to [column][4] with `pitch` floats between
/// columns. The interleaving works inside blocks of four lanes, so that vector j comes to hold
/// columns j, 4 + j, 8 + j, ...; the blocks go to their places through memory, since loads and
/// stores have ports to spare and shuffles of the widest vectors have one.
HWY_INLINE void interleave_four(const float* from, std::int64_t pitch, float* to) {
  const FloatTag tag;
  const hn::ScalableTag<double> pairs;
  const Floats row0 = load(from);
  const Floats row1 = load(from + kChunkColumns);
  const Floats row2 = load(from + 2 * kChunkColumns);
  const Floats row3 = load(from + 3 * kChunkColumns);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(tag, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(tag, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(tag, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(tag, row2, row3));
  alignas(64) float blocks[4][kLanes];
  hn::Store(hn::BitCast(tag, hn::InterleaveLower(pairs, low01, low23)), tag, blocks[0]);
  hn::Store(hn::BitCast(tag, hn::InterleaveUpper(pairs, low01, low23)), tag, blocks[1]);
  hn::Store(hn::BitCast(tag, hn::InterleaveLower(pairs, high01, high23)), tag, blocks[2]);
  hn::Store(hn::BitCast(tag, hn::InterleaveUpper(pairs, high01, high23)), tag, blocks[3]);
  const hn::FixedTag<float, 4> block;
  for (std::int64_t c = 0; c < kLanes; ++c) {
    hn::StoreU(hn::Load(block, blocks[c % 4] + c / 4 * 4), block, to + c * pitch);
  }
}

/// `rows` rows (at most a group) of 128 columns to [column][rows].
HWY_INLINE void interleave_rows(const float* from, std::int64_t rows, float* to) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    for (std::int64_t c = 0; c < kChunkColumns; c += kLanes) {
      interleave_four(from + row * kChunkColumns + c, rows, to + c * rows + row);
    }
  }
  for (; row < rows; ++row) {
    for (std::int64_t c = 0; c < kChunkColumns; ++c) {
      to[c * rows + row] = from[row * kChunkColumns + c];
    }
  }
}

void load_panel(const PanelSource& source, float* panel) {
  alignas(64) float rows_of_chunk[kRowGroup * kChunkColumns];
  for (std::int64_t first_row = 0; first_row < source.rows; first_row += kRowGroup) {
    const std::int64_t rows = min64(kRowGroup, source.rows - first_row);
    float* group = panel + first_row * source.columns;
    for (std::int64_t c = 0; c < source.columns; c += kChunkColumns) {
      const std::int64_t first = source.first_column + c;
      const std::int64_t valid = max64(0, min64(kChunkColumns, source.valid_columns - first));
      float* out = group + c * rows;
      float* decoded = rows == 1 ? out : rows_of_chunk;
      for (std::int64_t r = 0; r < rows; ++r) {
        load_row(source, first_row + r, first, valid, decoded + r * kChunkColumns);
      }
      if (rows > 1) interleave_rows(rows_of_chunk, rows, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();

#endif  // AVX2 or AVX-512
#endif  // once per target
