// The vector kernels, compiled once for AVX2 and once for AVX-512 by Highway's target pragmas, as
// cpu/kernels_vector.cpp.
#include <hwy/detect_compiler_arch.h>

#include "mqa_logits/kernels.hpp"

#if HWY_ARCH_X86

// clang-format off: the order matters.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3))
#undef HWY_COMPILE_ALL_ATTAINABLE
#define HWY_COMPILE_ALL_ATTAINABLE
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mqa_logits/kernels_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/vector/basics-inl.hpp"
// clang-format on

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace mqa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using megamoe::HWY_NAMESPACE::e4m3_bytes_to_floats;
using megamoe::HWY_NAMESPACE::Floats;
using megamoe::HWY_NAMESPACE::IntTag;
using megamoe::HWY_NAMESPACE::kLanes;
using megamoe::HWY_NAMESPACE::load;
using megamoe::HWY_NAMESPACE::load_bytes;
using megamoe::HWY_NAMESPACE::set;
using megamoe::HWY_NAMESPACE::store;
using megamoe::HWY_NAMESPACE::Uints;
using megamoe::HWY_NAMESPACE::UintTag;

/// Heads times vectors of keys whose dot products stay in registers: 8 of AVX2's 16, 16 of
/// AVX-512's 32, beside the vectors of a panel row and one of q.
inline constexpr std::int64_t kHeadBlock = 4;
inline constexpr std::int64_t kVectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;

void decode(const std::byte* bytes, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store(e4m3_bytes_to_floats(load_bytes(bytes + i)), values + i);
  }
}

/// Four columns of kLanes keys: words gathered at the keys' distance, a byte of them a column. A
/// lane without a key gathers from key 0, and its word is dropped.
void load_panel(const std::byte* keys, std::int64_t count, std::int64_t head_dim, float* panel) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(keys);
  for (std::int64_t first = 0; first < kTileKeys; first += kLanes) {
    const auto lane = hn::Add(hn::Iota(IntTag(), 0), hn::Set(IntTag(), static_cast<int>(first)));
    const auto there = hn::Lt(lane, hn::Set(IntTag(), static_cast<int>(count)));
    const auto word =
        hn::IfThenElseZero(there, hn::Mul(lane, hn::Set(IntTag(), static_cast<int>(head_dim / 4))));
    for (std::int64_t d = 0; d < head_dim; d += 4) {
      const Uints gathered = hn::IfThenElseZero(hn::RebindMask(UintTag(), there),
                                                hn::GatherIndex(UintTag(), words + d / 4, word));
      float* column = panel + d * kTileKeys + first;
      store(e4m3_bytes_to_floats(gathered), column);
      store(e4m3_bytes_to_floats(hn::ShiftRight<8>(gathered)), column + kTileKeys);
      store(e4m3_bytes_to_floats(hn::ShiftRight<16>(gathered)), column + 2 * kTileKeys);
      store(e4m3_bytes_to_floats(hn::ShiftRight<24>(gathered)), column + 3 * kTileKeys);
    }
  }
}

/// sum += weight * max(dot, 0) for kHeads heads from `head` on, kVectors vectors of keys.
template <std::int64_t kHeads>
HWY_INLINE void add_heads(const RowArguments& a, std::int64_t head, std::int64_t first,
                          Floats* HWY_RESTRICT sums) {
  Floats dots[kHeads][kVectors];
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t v = 0; v < kVectors; ++v) dots[h][v] = set(0.0f);
  }
  const float* q = a.q + head * a.head_dim;
  for (std::int64_t d = 0; d < a.head_dim; ++d) {
    Floats keys[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) {
      keys[v] = load(a.panel + d * kTileKeys + first + v * kLanes);
    }
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const Floats value = set(q[h * a.head_dim + d]);
      for (std::int64_t v = 0; v < kVectors; ++v) {
        dots[h][v] = hn::MulAdd(value, keys[v], dots[h][v]);
      }
    }
  }
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const Floats weight = set(a.weights[head + h]);
    for (std::int64_t v = 0; v < kVectors; ++v) {
      // A comparison, since the instruction for a maximum drops NaN.
      const auto negative = hn::Lt(dots[h][v], set(0.0f));
      sums[v] = hn::MulAdd(weight, hn::IfThenZeroElse(negative, dots[h][v]), sums[v]);
    }
  }
}

void row_logits(const RowArguments& a) {
  for (std::int64_t first = 0; first < kTileKeys; first += kVectors * kLanes) {
    Floats sums[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) sums[v] = set(0.0f);
    std::int64_t head = 0;
    for (; head + kHeadBlock <= a.heads; head += kHeadBlock) {
      add_heads<kHeadBlock>(a, head, first, sums);
    }
    for (; head < a.heads; ++head) add_heads<1>(a, head, first, sums);
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const std::int64_t at = first + v * kLanes;
      store(hn::Mul(sums[v], load(a.scales + at)), a.logits + at);
    }
  }
}

constexpr CpuKernels kTable{
    .instruction_set = HWY_TARGET == HWY_AVX3 ? InstructionSet::avx512 : InstructionSet::avx2,
    .load_panel = load_panel,
    .decode = decode,
    .row_logits = row_logits};

}  // namespace HWY_NAMESPACE
}  // namespace mqa
}  // namespace megamoe
HWY_AFTER_NAMESPACE();
#endif  // AVX2 or AVX-512

#if HWY_ONCE
namespace megamoe::mqa {

const CpuKernels* avx2_mqa_kernels() {
  return &N_AVX2::kTable;
}
const CpuKernels* avx512_mqa_kernels() {
  return &N_AVX3::kTable;
}

}  // namespace megamoe::mqa
#endif  // HWY_ONCE

#else  // no x86

namespace megamoe::mqa {

const CpuKernels* avx2_mqa_kernels() {
  return nullptr;
}
const CpuKernels* avx512_mqa_kernels() {
  return nullptr;
}

}  // namespace megamoe::mqa

#endif  // HWY_ARCH_X86
