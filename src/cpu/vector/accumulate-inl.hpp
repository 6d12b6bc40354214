// The matrix product. Rows up to one group: weights go from packed words through registers into the
// sums. More rows: a chunk is unpacked once into L1, then every group of rows runs over it. The
// operations on a row's sums, and their order, are the same.
#if defined(MEGAMOE_CPU_VECTOR_ACCUMULATE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGAMOE_CPU_VECTOR_ACCUMULATE_INL
#undef MEGAMOE_CPU_VECTOR_ACCUMULATE_INL
#else
#define MEGAMOE_CPU_VECTOR_ACCUMULATE_INL
#endif

#include <utility>

#include "cpu/vector/weights-inl.hpp"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {

// Two accumulators a row: 24 of the 32 registers of AVX-512, 12 of the 16 of AVX2. The others hold
// two weights, the table or words they come from, and the value of a row.
inline constexpr int kRowGroup = HWY_TARGET == HWY_AVX3 ? 12 : 6;

/// Sums of Rows rows and the two vectors of a pass.
template <int Rows>
struct Tile {
  Floats of[Rows][2];
};

template <int Rows>
HWY_INLINE void clear(Tile<Rows>& tile) {
  for (int r = 0; r < Rows; ++r) {
    tile.of[r][0] = hn::Zero(FloatTag());
    tile.of[r][1] = hn::Zero(FloatTag());
  }
}

template <int Rows>
HWY_INLINE void load_sums(Tile<Rows>& tile, const float* sums) {
  for (int r = 0; r < Rows; ++r) {
    tile.of[r][0] = load(sums + r * kStripLanes);
    tile.of[r][1] = load(sums + r * kStripLanes + kLanes);
  }
}

template <int Rows>
HWY_INLINE void store_sums(const Tile<Rows>& tile, float* sums) {
  for (int r = 0; r < Rows; ++r) {
    store(tile.of[r][0], sums + r * kStripLanes);
    store(tile.of[r][1], sums + r * kStripLanes + kLanes);
  }
}

/// sums = fma(tile, scale, sums).
template <int Rows>
HWY_INLINE void add_scaled(const Tile<Rows>& tile, Floats scale0, Floats scale1, float* sums) {
  for (int r = 0; r < Rows; ++r) {
    float* row = sums + r * kStripLanes;
    store(hn::MulAdd(tile.of[r][0], scale0, load(row)), row);
    store(hn::MulAdd(tile.of[r][1], scale1, load(row + kLanes)), row + kLanes);
  }
}

/// tile += x * weights for one column; x holds the column's Rows values.
template <int Rows>
HWY_INLINE void multiply_column(const float* x, Floats weights0, Floats weights1,
                                Tile<Rows>& tile) {
  for (int r = 0; r < Rows; ++r) {
    const Floats value = set(x[r]);
    tile.of[r][0] = hn::MulAdd(value, weights0, tile.of[r][0]);
    tile.of[r][1] = hn::MulAdd(value, weights1, tile.of[r][1]);
  }
}

template <class Source, int Rows, int... J>
HWY_INLINE void multiply_word(const Source& source, std::int64_t w, const float* x,
                              Tile<Rows>& tile, std::integer_sequence<int, J...>) {
  const typename Source::Word word0 = source.word(w, 0);
  const typename Source::Word word1 = source.word(w, 1);
  (multiply_column<Rows>(x + J * Rows, source.template column<J>(word0),
                         source.template column<J>(word1), tile),
   ...);
}

template <class Source, int Rows>
HWY_INLINE void multiply_words(const Source& source, std::int64_t first, std::int64_t words,
                               const float* x, Tile<Rows>& tile) {
  constexpr int kStep = Source::kColumnsPerWord;
  for (std::int64_t w = first; w < first + words; ++w) {
    multiply_word(source, w, x + w * kStep * Rows, tile, std::make_integer_sequence<int, kStep>());
  }
}

/// One chunk of one pass; `x` holds [column][Rows], `sums` [Rows][32].
template <class Source, int Rows>
HWY_INLINE void multiply_chunk(const Source& source, const float* x, float* sums) {
  Tile<Rows> tile;
  if constexpr (Source::kScaleColumns == 0) {
    load_sums(tile, sums);
    multiply_words(source, 0, kChunkColumns / Source::kColumnsPerWord, x, tile);
    store_sums(tile, sums);
  } else {
    constexpr std::int64_t kWords = Source::kScaleColumns / Source::kColumnsPerWord;
    for (std::int64_t group = 0; group < kChunkColumns / Source::kScaleColumns; ++group) {
      clear(tile);
      multiply_words(source, group * kWords, kWords, x, tile);
      add_scaled(tile, source.scale(group, 0), source.scale(group, 1), sums);
    }
  }
}

template <WeightFormat Format, int Rows>
void multiply_packed(const AccumulateArguments& a) {
  for (std::int64_t strip = 0; strip < a.strips; ++strip) {
    float* sums = a.sums + strip * kRowGroup * kStripLanes;
    for (std::int64_t c = 0; c < a.chunks; ++c) {
      const std::byte* chunk = a.weights + strip * a.strip_stride_bytes + c * chunk_bytes(Format);
      for (std::int64_t pass = 0; pass < kPasses; ++pass) {
        multiply_chunk<PackedWeights<Format>, Rows>(PackedWeights<Format>(chunk, pass),
                                                    a.panel + c * kChunkColumns * Rows,
                                                    sums + pass * kPassLanes);
      }
    }
  }
}

template <WeightFormat Format, int Rows>
void multiply_buffered(const WeightBuffer& buffer, const float* x, float* sums) {
  for (std::int64_t pass = 0; pass < kPasses; ++pass) {
    multiply_chunk<BufferedWeights<Format>, Rows>(BufferedWeights<Format>(buffer, pass), x,
                                                  sums + pass * kPassLanes);
  }
}

/// The function for each number of rows in a group, from 1 on.
template <WeightFormat Format>
struct ForRows {
  void (*packed)(const AccumulateArguments& a);
  void (*buffered)(const WeightBuffer& buffer, const float* x, float* sums);
};

template <WeightFormat Format, int... R>
ForRows<Format> for_rows(std::int64_t rows, std::integer_sequence<int, R...>) {
  static constexpr ForRows<Format> kTable[] = {
      {multiply_packed<Format, R + 1>, multiply_buffered<Format, R + 1>}...};
  return kTable[rows - 1];
}

template <WeightFormat Format>
ForRows<Format> for_rows(std::int64_t rows) {
  return for_rows<Format>(rows, std::make_integer_sequence<int, kRowGroup>());
}

template <WeightFormat Format>
void accumulate_many(const AccumulateArguments& a) {
  WeightBuffer buffer;
  const std::int64_t padded_rows = round_up(a.rows, kRowGroup);
  const auto full = for_rows<Format>(kRowGroup).buffered;
  const std::int64_t full_rows = a.rows / kRowGroup * kRowGroup;
  const std::int64_t rest = a.rows - full_rows;
  for (std::int64_t strip = 0; strip < a.strips; ++strip) {
    float* sums = a.sums + strip * padded_rows * kStripLanes;
    for (std::int64_t c = 0; c < a.chunks; ++c) {
      unpack_chunk<Format>(a.weights + strip * a.strip_stride_bytes + c * chunk_bytes(Format),
                           buffer);
      for (std::int64_t row = 0; row < full_rows; row += kRowGroup) {
        full(buffer, a.panel + (row * a.chunks + c * kRowGroup) * kChunkColumns,
             sums + row * kStripLanes);
      }
      if (rest > 0) {
        for_rows<Format>(rest).buffered(buffer,
                                        a.panel + (full_rows * a.chunks + c * rest) * kChunkColumns,
                                        sums + full_rows * kStripLanes);
      }
    }
  }
}

template <WeightFormat Format>
void accumulate_format(const AccumulateArguments& a) {
  if (a.rows <= 0) return;
  if (a.rows <= kRowGroup) {
    for_rows<Format>(a.rows).packed(a);
  } else {
    accumulate_many<Format>(a);
  }
}

void accumulate(const AccumulateArguments& a) {
  switch (a.format) {
    case WeightFormat::fp4:
      return accumulate_format<WeightFormat::fp4>(a);
    case WeightFormat::fp8:
      return accumulate_format<WeightFormat::fp8>(a);
    case WeightFormat::bf16:
      return accumulate_format<WeightFormat::bf16>(a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();

#endif  // AVX2 or AVX-512
#endif  // once per target
