// Vector types and the conversions that several kernels share. Included once per target of Highway.
#if defined(MEGAMOE_CPU_VECTOR_BASICS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGAMOE_CPU_VECTOR_BASICS_INL
#undef MEGAMOE_CPU_VECTOR_BASICS_INL
#else
#define MEGAMOE_CPU_VECTOR_BASICS_INL
#endif

#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "cpu/kernels.hpp"
#include "numerics/float_bits.hpp"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using UintTag = hn::ScalableTag<std::uint32_t>;
using IntTag = hn::ScalableTag<std::int32_t>;
using Floats = hn::Vec<FloatTag>;
using Uints = hn::Vec<UintTag>;

inline constexpr std::int64_t kLanes = HWY_MAX_BYTES / 4;

HWY_INLINE Floats set(float value) {
  return hn::Set(FloatTag(), value);
}
HWY_INLINE Uints set_bits(std::uint32_t value) {
  return hn::Set(UintTag(), value);
}
HWY_INLINE Uints bits_of(Floats value) {
  return hn::BitCast(UintTag(), value);
}
HWY_INLINE Floats floats_of(Uints bits) {
  return hn::BitCast(FloatTag(), bits);
}
HWY_INLINE Floats load(const float* from) {
  return hn::LoadU(FloatTag(), from);
}
HWY_INLINE void store(Floats value, float* to) {
  hn::StoreU(value, FloatTag(), to);
}

/// The 32-bit words at `from`, at any alignment.
HWY_INLINE Uints load_words(const std::byte* from) {
  return hn::LoadU(UintTag(), reinterpret_cast<const std::uint32_t*>(from));
}
/// kLanes bytes, each in a word.
HWY_INLINE Uints load_bytes(const std::byte* from) {
  const hn::Rebind<std::uint8_t, UintTag> tag;
  return hn::PromoteTo(UintTag(), hn::LoadU(tag, reinterpret_cast<const std::uint8_t*>(from)));
}
/// kLanes 16-bit values, each in the upper half of a word: bf16 as f32.
HWY_INLINE Floats load_bf16(const void* from) {
  const hn::Rebind<std::uint16_t, UintTag> tag;
  const auto halves = hn::LoadU(tag, static_cast<const std::uint16_t*>(from));
  return floats_of(hn::ShiftLeft<16>(hn::PromoteTo(UintTag(), halves)));
}

/// to_bf16 of numerics/bf16.hpp; the results stand in the upper halves, the lower ones are zero.
HWY_INLINE Uints round_to_bf16(Floats value) {
  const Uints bits = bits_of(value);
  const Uints odd = hn::And(hn::ShiftRight<16>(bits), set_bits(1));
  const Uints rounded = hn::Add(hn::Add(bits, set_bits(0x7FFF)), odd);
  const auto is_nan = hn::RebindMask(UintTag(), hn::IsNaN(value));
  return hn::IfThenElse(is_nan, set_bits(0x7FFF'0000), hn::And(rounded, set_bits(0xFFFF'0000)));
}

HWY_INLINE void store_bf16(Floats value, BFloat16* to) {
  const hn::Rebind<std::uint16_t, IntTag> tag;
  const auto words = hn::BitCast(IntTag(), hn::ShiftRight<16>(round_to_bf16(value)));
  hn::StoreU(hn::DemoteTo(tag, words), tag, reinterpret_cast<std::uint16_t*>(to));
}

/// E4M3 to f32; `magnitude` holds the lower seven bits at bit 20, `sign` the sign at bit 31 (its
/// other bits are ignored). With E4M3's bias corrected, a magnitude of exponent field 0 reads as
/// a = (1 + m/8) 2^-7 where it means (m/8) 2^-6 = 2a - 2^-6. From field 1 on a is right and 2a -
/// 2^-6 is no less, so that the minimum of the two is the value: exact, and without subnormal
/// operands, which are slow.
HWY_INLINE Floats e4m3_to_floats(Uints magnitude, Uints sign) {
  constexpr std::uint32_t kRebias = 127 - 7;
  const Floats as_normal = floats_of(hn::Add(magnitude, set_bits(kRebias << 23)));
  const Floats as_subnormal = hn::MulAdd(as_normal, set(2.0f), set(-0x1p-6f));
  const Floats finite = hn::Min(as_normal, as_subnormal);
  const auto is_nan = hn::Eq(as_normal, set(480.0f));
  const Floats value = hn::IfThenElse(is_nan, floats_of(set_bits(kF32NaNBits)), finite);
  return floats_of(hn::OrAnd(bits_of(value), sign, set_bits(kF32SignBit)));
}

HWY_INLINE Floats e4m3_bytes_to_floats(Uints bytes) {
  return e4m3_to_floats(hn::ShiftLeft<20>(hn::And(bytes, set_bits(0x7F))),
                        hn::ShiftLeft<24>(bytes));
}

/// ue8m0_to_float of numerics/ue8m0.hpp.
HWY_INLINE Floats ue8m0_to_floats(Uints bytes) {
  const Uints power = hn::Max(hn::ShiftLeft<23>(bytes), set_bits(0x0040'0000));
  return floats_of(hn::IfThenElse(hn::Eq(bytes, set_bits(255)), set_bits(kF32NaNBits), power));
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();

#endif  // AVX2 or AVX-512
#endif  // once per target
