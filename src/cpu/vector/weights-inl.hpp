// Packed weights as f32 vectors: each format from the packed words, and all of them from a buffer.
//
// Two vectors of outputs are multiplied at once: a strip with AVX-512, a half-strip with AVX2. A
// `pass` is such a pair of a strip. The sources below share an interface:
//   kColumnsPerWord          columns of what word() returns
//   kScaleColumns            columns of one scale; 0 where there are none
//   word(w, v)               the w-th word of vector v
//   column<J>(word)          column J of a word as f32
//   scale(group, v)          the scales of the group-th kScaleColumns columns
#if defined(MEGAMOE_CPU_VECTOR_WEIGHTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGAMOE_CPU_VECTOR_WEIGHTS_INL
#undef MEGAMOE_CPU_VECTOR_WEIGHTS_INL
#else
#define MEGAMOE_CPU_VECTOR_WEIGHTS_INL
#endif

#include <utility>

#include "cpu/vector/basics-inl.hpp"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kPassLanes = 2 * kLanes;
inline constexpr std::int64_t kPasses = kStripLanes / kPassLanes;

constexpr std::int64_t lane_of(std::int64_t pass, std::int64_t vector) {
  return pass * kPassLanes + vector * kLanes;
}

// How far ahead of its use a line of weights is asked for: into L2 farther than a core reads during
// a memory access (12 GB/s times 100 ns are 1.2 KB, times the jitter of a loaded memory), then into
// L1 from there. The two together beat either alone by 4 % or more; neither ever faults.
inline constexpr std::int64_t kPrefetchToL2Bytes = 8192;
inline constexpr std::int64_t kPrefetchToL1Bytes = 1024;

template <WeightFormat Format>
HWY_INLINE Uints load_packed(const std::byte* chunk, std::int64_t pass, std::int64_t word,
                             std::int64_t vector) {
  const std::byte* from =
      chunk + word_offset(Format, lane_of(pass, vector), 0) + word * kStripLanes * 4;
  _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchToL2Bytes), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchToL1Bytes), _MM_HINT_T0);
  return load_words(from);
}

alignas(64) inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};

template <WeightFormat Format>
class PackedWeights;

template <>
class PackedWeights<WeightFormat::fp4> {
 public:
  using Word = Uints;
  static constexpr int kColumnsPerWord = 8;
  static constexpr int kScaleColumns = 32;

  HWY_INLINE PackedWeights(const std::byte* chunk, std::int64_t pass)
      : chunk_(chunk), pass_(pass), table_(load(kE2m1Values)) {}

  HWY_INLINE Word word(std::int64_t w, std::int64_t v) const {
    return load_packed<WeightFormat::fp4>(chunk_, pass_, w, v);
  }
  // The permutations look at no more bits of an index than they need: four, and three.
  template <int J>
  HWY_INLINE Floats column(Word word) const {
    const Uints index = hn::ShiftRight<4 * J>(word);
#if HWY_TARGET == HWY_AVX3
    return Floats{_mm512_permutexvar_ps(index.raw, table_.raw)};
#else
    const Floats magnitude{_mm256_permutevar8x32_ps(table_.raw, index.raw)};
    const Uints sign = hn::ShiftLeft<28 - 4 * J>(word);
    return floats_of(hn::OrAnd(bits_of(magnitude), sign, set_bits(kF32SignBit)));
#endif
  }
  HWY_INLINE Floats scale(std::int64_t group, std::int64_t v) const {
    return ue8m0_to_floats(load_bytes(
        chunk_ + scale_offset(WeightFormat::fp4, lane_of(pass_, v), group * kScaleColumns)));
  }

 private:
  const std::byte* chunk_;
  std::int64_t pass_;
  Floats table_;
};

#if HWY_TARGET == HWY_AVX3

/// Four E4M3 values of each lane as bf16, which holds them exactly.
struct E4m3Word {
  Uints columns02;  ///< column 0 in the lower halves, column 2 in the upper ones
  Uints columns13;
};

/// The bf16 of E4M3 m * 2^-9, for m = 0 to 7.
alignas(64) inline constexpr std::uint16_t kE4m3Subnormals[32] = {0x0000, 0x3B00, 0x3B80, 0x3BC0,
                                                                  0x3C00, 0x3C20, 0x3C40, 0x3C60};

/// 32 E4M3 bytes to bf16. They stand in the upper bytes of `upper`, whose lower ones are ignored,
/// and in the lower bytes of `lower`, whose upper ones are ignored.
HWY_INLINE Uints e4m3_to_bf16(__m512i upper, __m512i lower) {
  constexpr short kRebias = (127 - 7) << 7;
  const __m512i magnitude = _mm512_and_si512(_mm512_srli_epi16(upper, 4), _mm512_set1_epi16(0x7F0));
  const __m512i as_normal = _mm512_add_epi16(magnitude, _mm512_set1_epi16(kRebias));
  const __mmask32 is_subnormal = _mm512_testn_epi16_mask(upper, _mm512_set1_epi16(0x7800));
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(as_normal, _mm512_set1_epi16(kRebias + 0x7F0));
  const __m512i finite = _mm512_mask_permutexvar_epi16(as_normal, is_subnormal, lower,
                                                       _mm512_load_si512(kE4m3Subnormals));
  const __m512i value = _mm512_mask_mov_epi16(finite, is_nan, _mm512_set1_epi16(0x7FFF));
  return hn::OrAnd(Uints{value}, Uints{upper}, set_bits(0x8000'8000));
}

HWY_INLINE E4m3Word unpack_e4m3(Uints word) {
  return {e4m3_to_bf16(_mm512_slli_epi16(word.raw, 8), word.raw),
          e4m3_to_bf16(word.raw, _mm512_srli_epi16(word.raw, 8))};
}

template <int J>
HWY_INLINE Floats e4m3_column(const E4m3Word& word) {
  const Uints pair = J % 2 == 0 ? word.columns02 : word.columns13;
  if constexpr (J < 2) return floats_of(hn::ShiftLeft<16>(pair));
  return floats_of(hn::And(pair, set_bits(0xFFFF'0000)));
}

#else

using E4m3Word = Uints;

HWY_INLINE E4m3Word unpack_e4m3(Uints word) {
  return word;
}

template <int J>
HWY_INLINE Floats e4m3_column(E4m3Word word) {
  const Uints at_top = hn::ShiftLeft<24 - 8 * J>(word);
  return e4m3_to_floats(hn::And(hn::ShiftRight<4>(at_top), set_bits(0x7Fu << 20)), at_top);
}

#endif

template <>
class PackedWeights<WeightFormat::fp8> {
 public:
  using Word = E4m3Word;
  static constexpr int kColumnsPerWord = 4;
  static constexpr int kScaleColumns = 128;

  HWY_INLINE PackedWeights(const std::byte* chunk, std::int64_t pass)
      : chunk_(chunk), pass_(pass) {}

  HWY_INLINE Word word(std::int64_t w, std::int64_t v) const {
    return unpack_e4m3(load_packed<WeightFormat::fp8>(chunk_, pass_, w, v));
  }
  template <int J>
  HWY_INLINE Floats column(const Word& word) const {
    return e4m3_column<J>(word);
  }
  HWY_INLINE Floats scale(std::int64_t /*group*/, std::int64_t v) const {
    return floats_of(load_words(chunk_ + scale_offset(WeightFormat::fp8, lane_of(pass_, v), 0)));
  }

 private:
  const std::byte* chunk_;
  std::int64_t pass_;
};

template <>
class PackedWeights<WeightFormat::bf16> {
 public:
  using Word = Uints;
  static constexpr int kColumnsPerWord = 2;
  static constexpr int kScaleColumns = 0;

  HWY_INLINE PackedWeights(const std::byte* chunk, std::int64_t pass)
      : chunk_(chunk), pass_(pass) {}

  HWY_INLINE Word word(std::int64_t w, std::int64_t v) const {
    return load_packed<WeightFormat::bf16>(chunk_, pass_, w, v);
  }
  template <int J>
  HWY_INLINE Floats column(Word word) const {
    if constexpr (J == 0) return floats_of(hn::ShiftLeft<16>(word));
    return floats_of(hn::And(word, set_bits(0xFFFF'0000)));
  }

 private:
  const std::byte* chunk_;
  std::int64_t pass_;
};

/// One chunk as f32, in a core's L1 data cache beside the rows of one group: 16.5 KiB and 6 KiB.
struct WeightBuffer {
  alignas(64) float values[kChunkColumns][kStripLanes];
  alignas(64) float scales[kChunkColumns / 32][kStripLanes];
};

template <WeightFormat Format>
class BufferedWeights {
 public:
  using Word = const float*;
  static constexpr int kColumnsPerWord = 8;
  static constexpr int kScaleColumns = PackedWeights<Format>::kScaleColumns;

  HWY_INLINE BufferedWeights(const WeightBuffer& buffer, std::int64_t pass)
      : buffer_(buffer), pass_(pass) {}

  HWY_INLINE Word word(std::int64_t w, std::int64_t v) const {
    return &buffer_.values[w * kColumnsPerWord][lane_of(pass_, v)];
  }
  template <int J>
  HWY_INLINE Floats column(Word word) const {
    return hn::Load(FloatTag(), word + J * kStripLanes);
  }
  HWY_INLINE Floats scale(std::int64_t group, std::int64_t v) const {
    return hn::Load(FloatTag(), &buffer_.scales[group][lane_of(pass_, v)]);
  }

 private:
  const WeightBuffer& buffer_;
  std::int64_t pass_;
};

template <class Source, int... J>
HWY_INLINE void unpack_word(const Source& source, typename Source::Word word, float* to,
                            std::integer_sequence<int, J...>) {
  (hn::Store(source.template column<J>(word), FloatTag(), to + J * kStripLanes), ...);
}

template <WeightFormat Format>
HWY_INLINE void unpack_chunk(const std::byte* chunk, WeightBuffer& buffer) {
  using Source = PackedWeights<Format>;
  constexpr int kStep = Source::kColumnsPerWord;
  for (std::int64_t pass = 0; pass < kPasses; ++pass) {
    const Source source(chunk, pass);
    for (std::int64_t v = 0; v < 2; ++v) {
      const std::int64_t lane = lane_of(pass, v);
      for (std::int64_t w = 0; w < kChunkColumns / kStep; ++w) {
        unpack_word(source, source.word(w, v), &buffer.values[w * kStep][lane],
                    std::make_integer_sequence<int, kStep>());
      }
      if constexpr (Source::kScaleColumns > 0) {
        for (std::int64_t group = 0; group < kChunkColumns / Source::kScaleColumns; ++group) {
          hn::Store(source.scale(group, v), FloatTag(), &buffer.scales[group][lane]);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();

#endif  // AVX2 or AVX-512
#endif  // once per target
