// What follows a matrix product. The operations and their order are those of numerics/, value by
// value.
#if defined(MEGAMOE_CPU_VECTOR_EPILOGUES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGAMOE_CPU_VECTOR_EPILOGUES_INL
#undef MEGAMOE_CPU_VECTOR_EPILOGUES_INL
#else
#define MEGAMOE_CPU_VECTOR_EPILOGUES_INL
#endif

#include "cpu/vector/basics-inl.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/exp.hpp"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace megamoe {
namespace HWY_NAMESPACE {

/// `value` where value <= high and for NaN, else `high`.
HWY_INLINE Floats clamp_above(Floats value, Floats high) {
  return hn::IfThenElse(hn::Gt(value, high), high, value);
}
HWY_INLINE Floats clamp_below(Floats value, Floats low) {
  return hn::IfThenElse(hn::Lt(value, low), low, value);
}

/// 2^i; i as 32-bit integers in two's complement.
HWY_INLINE Floats power_of_two(Uints i) {
  return floats_of(hn::ShiftLeft<23>(hn::Add(i, set_bits(127))));
}

/// exp_steps of numerics/exp.hpp.
HWY_INLINE Floats exp(Floats x) {
  using C = ExpConstants;
  x = clamp_below(clamp_above(x, set(C::kHighest)), set(C::kLowest));
  const Floats round = set(C::kRound);
  const Floats shifted = hn::Add(hn::Mul(x, set(C::kLog2E)), round);
  const Floats n = hn::Sub(shifted, round);
  const Floats r = hn::Sub(hn::Sub(x, hn::Mul(n, set(C::kLn2High))), hn::Mul(n, set(C::kLn2Low)));
  Floats q = set(C::k6);
  q = hn::Add(hn::Mul(q, r), set(C::k5));
  q = hn::Add(hn::Mul(q, r), set(C::k4));
  q = hn::Add(hn::Mul(q, r), set(C::k3));
  q = hn::Add(hn::Mul(q, r), set(C::k2));
  const Floats tail = hn::Add(hn::Mul(hn::Mul(r, r), q), r);
  const Floats mantissa = hn::Add(tail, set(1.0f));
  const Uints exponent = hn::Sub(bits_of(shifted), bits_of(round));
  const Uints first = hn::BitCast(UintTag(), hn::ShiftRight<1>(hn::BitCast(IntTag(), exponent)));
  const Uints second = hn::Sub(exponent, first);
  return hn::Mul(hn::Mul(mantissa, power_of_two(first)), power_of_two(second));
}

/// activate of numerics/activation.hpp.
HWY_INLINE Floats activation(const ActivationRule& rule, Floats gate, Floats up) {
  const Floats g = clamp_above(gate, set(rule.limit));
  const Floats u = clamp_below(clamp_above(up, set(rule.limit)), set(-rule.limit));
  const Floats e = exp(hn::Neg(hn::Mul(set(rule.slope), g)));
  const Floats silu = hn::Div(g, hn::Add(set(1.0f), e));
  return hn::Mul(silu, hn::Add(u, set(rule.up_offset)));
}

HWY_INLINE Floats gemm1_result(const float* sums, const float* bias) {
  const Floats sum = load(sums);
  return floats_of(round_to_bf16(bias == nullptr ? sum : hn::Add(sum, load(bias))));
}

void activate(const ActivateArguments& a) {
  for (std::int64_t strip = 0; strip < a.strips; ++strip) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const float* sums = a.sums + (strip * a.padded_rows + row) * kStripLanes;
      float* out = a.activations + row * a.activation_stride + strip * kHalfStripLanes;
      const Floats weight = set(a.row_weights[row]);
      for (std::int64_t lane = 0; lane < kHalfStripLanes; lane += kLanes) {
        const std::int64_t column = strip * kHalfStripLanes + lane;
        const Floats gate =
            gemm1_result(sums + lane, a.gate_bias == nullptr ? nullptr : a.gate_bias + column);
        const Floats up = gemm1_result(sums + kHalfStripLanes + lane,
                                       a.up_bias == nullptr ? nullptr : a.up_bias + column);
        store(hn::Mul(activation(a.rule, gate, up), weight), out + lane);
      }
    }
  }
}

/// float_to_e4m3 of numerics/e4m3.hpp, for values that are not NaN.
HWY_INLINE Uints finite_floats_to_e4m3(Floats value) {
  constexpr std::uint32_t kRebias = 127 - 7;
  const Uints bits = bits_of(value);
  const Uints sign = hn::And(bits, set_bits(kF32SignBit));
  const Uints magnitude = hn::Xor(bits, sign);
  const Uints odd = hn::And(hn::ShiftRight<20>(magnitude), set_bits(1));
  const Uints rounded =
      hn::ShiftRight<20>(hn::Add(hn::Add(magnitude, set_bits(0x0007'FFFF - (kRebias << 23))), odd));
  const Uints as_normal = hn::Min(rounded, set_bits(kE4m3MaxByte));
  const Floats steps = hn::Add(floats_of(magnitude), set(0x1p14f));
  const Uints as_subnormal = hn::Sub(bits_of(steps), bits_of(set(0x1p14f)));
  const auto is_subnormal = hn::RebindMask(UintTag(), hn::Lt(floats_of(magnitude), set(0x1p-6f)));
  return hn::Or(hn::IfThenElse(is_subnormal, as_subnormal, as_normal), hn::ShiftRight<24>(sign));
}

HWY_INLINE void store_bytes(Uints words, std::byte* to) {
  const hn::Rebind<std::uint8_t, IntTag> tag;
  hn::StoreU(hn::DemoteTo(tag, hn::BitCast(IntTag(), words)), tag,
             reinterpret_cast<std::uint8_t*>(to));
}

HWY_INLINE std::uint32_t group_magnitude(const float* values, std::int64_t columns) {
  const Uints mask = set_bits(~kF32SignBit);
  Uints largest = hn::Zero(UintTag());
  const std::int64_t whole = columns / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    largest = hn::Max(largest, hn::And(bits_of(load(values + c)), mask));
  }
  const std::uint32_t of_rest = group_magnitude_bits(values + whole, columns - whole);
  const std::uint32_t of_whole = hn::GetLane(hn::MaxOfLanes(UintTag(), largest));
  return of_rest > of_whole ? of_rest : of_whole;
}

/// quantise_e4m3_group of numerics/block_scale.hpp.
HWY_INLINE void quantise_row(const float* values, std::int64_t columns, std::byte* bytes,
                             std::byte& scale) {
  const std::uint32_t largest = group_magnitude(values, columns);
  if (largest >= kF32InfinityBits) {
    scale = std::byte{kUe8m0One};
    std::memset(bytes, kE4m3NaN, static_cast<std::size_t>(columns));
    return;
  }
  const std::uint8_t scale_byte = e4m3_group_scale(f32_from_bits(largest));
  scale = std::byte{scale_byte};
  const float reciprocal = ue8m0_reciprocal(scale_byte);
  const std::int64_t whole = columns / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    store_bytes(finite_floats_to_e4m3(hn::Mul(load(values + c), set(reciprocal))), bytes + c);
  }
  for (std::int64_t c = whole; c < columns; ++c) {
    bytes[c] = std::byte{float_to_e4m3(values[c] * reciprocal)};
  }
}

void quantise(const QuantiseArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    quantise_row(a.values + row * a.value_stride, a.columns, a.bytes + row * a.row_stride_bytes,
                 a.scales[row * a.scale_row_stride_bytes]);
  }
}

void finish_row(const FinishRowArguments& a) {
  const std::int64_t whole = a.columns / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    Floats sum = load(a.sums + c / kStripLanes * a.strip_stride + c % kStripLanes);
    if (a.bias != nullptr) sum = hn::Add(sum, hn::Mul(set(a.weight), load(a.bias + c)));
    store_bf16(sum, a.out + c);
  }
  for (std::int64_t c = whole; c < a.columns; ++c) {
    const float sum = a.sums[c / kStripLanes * a.strip_stride + c % kStripLanes];
    a.out[c] = to_bf16(a.bias == nullptr ? sum : sum + a.weight * a.bias[c]);
  }
}

void combine(const CombineArguments& a) {
  const std::int64_t whole = a.columns / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    Floats sum = hn::Zero(FloatTag());
    for (std::int64_t slot = 0; slot < a.slot_count; ++slot) {
      sum = hn::Add(sum, load_bf16(a.slots[slot] + c));
    }
    store_bf16(sum, a.y + c);
  }
  for (std::int64_t c = whole; c < a.columns; ++c) {
    float sum = 0.0f;
    for (std::int64_t slot = 0; slot < a.slot_count; ++slot) sum += to_float(a.slots[slot][c]);
    a.y[c] = to_bf16(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe
HWY_AFTER_NAMESPACE();

#endif  // AVX2 or AVX-512
#endif  // once per target
