// The f32 exponential of the activations: one sequence of operations, so that every instantiation
// gives the same bits.
#pragma once

#include <cstdint>

#include "numerics/float_bits.hpp"

namespace megamoe {

/// What exp_steps computes with. e^x = 2^n * e^r with n the integer nearest to x / ln 2 and |r| <=
/// ln 2 / 2.
struct ExpConstants {
  /// Beyond these the result is infinity and 0: e^89 > 2^128, and e^-104 is below half of the least
  /// subnormal.
  static constexpr float kHighest = 89.0f;
  static constexpr float kLowest = -104.0f;
  static constexpr float kLog2E = 0x1.715476p+0f;
  /// 1.5 * 2^23: f32 values around it are 1 apart, so adding it rounds to an integer that stands in
  /// its low bits.
  static constexpr float kRound = 0x1.8p23f;
  /// ln 2 in two parts. The upper has 15 bits, so that its product with any n (8 bits) is exact.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  /// e^r ~ 1 + (r + r^2 (k2 + r (k3 + r (k4 + r (k5 + r k6))))): a minimax fit on |r| <= ln 2 / 2,
  /// error 3.3e-9.
  static constexpr float k2 = 0.5f;
  static constexpr float k3 = 0x1.555490p-3f;
  static constexpr float k4 = 0x1.5554cep-5f;
  static constexpr float k5 = 0x1.123abap-7f;
  static constexpr float k6 = 0x1.6d6baap-10f;
};

/// The sequence. `Ops` names the operations of a type, scalar or vector, each rounded by itself (a
/// build must not contract multiply and add into fma: -ffp-contract=off, nvcc -fmad=false), with
/// f32 subnormals kept:
///
///   Float                     holds f32 values
///   Int                       holds as many 32-bit integers, two's complement
///   set(float) -> Float
///   add, subtract, multiply(Float, Float) -> Float
///   clamp(Float x, Float low, Float high): high where x > high, low where x < low, else x, hence
///   NaN for NaN bits_minus(Float a, Float b) -> Int: the integer difference of the bit patterns,
///   modulo 2^32 half(Int i): i >> 1, arithmetic subtract(Int, Int) -> Int, modulo 2^32
///   power_of_two(Int i) -> Float: the f32 with the bits (i + 127) << 23, modulo 2^32
///
/// Code that a library compiles once per instruction set (Highway) cannot instantiate a template
/// from outside its target region: it repeats these steps in this order, and a test holds it to
/// them.
template <class Ops>
constexpr typename Ops::Float exp_steps(typename Ops::Float x) {
  using C = ExpConstants;
  using Float = typename Ops::Float;
  x = Ops::clamp(x, Ops::set(C::kLowest), Ops::set(C::kHighest));
  const Float round = Ops::set(C::kRound);
  const Float shifted = Ops::add(Ops::multiply(x, Ops::set(C::kLog2E)), round);
  const Float n = Ops::subtract(shifted, round);
  const Float r = Ops::subtract(Ops::subtract(x, Ops::multiply(n, Ops::set(C::kLn2High))),
                                Ops::multiply(n, Ops::set(C::kLn2Low)));
  Float q = Ops::set(C::k6);
  q = Ops::add(Ops::multiply(q, r), Ops::set(C::k5));
  q = Ops::add(Ops::multiply(q, r), Ops::set(C::k4));
  q = Ops::add(Ops::multiply(q, r), Ops::set(C::k3));
  q = Ops::add(Ops::multiply(q, r), Ops::set(C::k2));
  const Float tail = Ops::add(Ops::multiply(Ops::multiply(r, r), q), r);
  const Float mantissa = Ops::add(tail, Ops::set(1.0f));
  // 2^n in two factors: n = 128 and n < -126 are no f32, and only the last product rounds.
  const typename Ops::Int exponent = Ops::bits_minus(shifted, round);
  const typename Ops::Int first = Ops::half(exponent);
  const typename Ops::Int second = Ops::subtract(exponent, first);
  return Ops::multiply(Ops::multiply(mantissa, Ops::power_of_two(first)),
                       Ops::power_of_two(second));
}

struct ScalarExpOps {
  using Float = float;
  using Int = std::int32_t;
  static constexpr float set(float value) { return value; }
  static constexpr float add(float a, float b) { return a + b; }
  static constexpr float subtract(float a, float b) { return a - b; }
  static constexpr float multiply(float a, float b) { return a * b; }
  static constexpr float clamp(float x, float low, float high) {
    if (x > high) return high;
    return x < low ? low : x;
  }
  static constexpr std::int32_t bits_minus(float a, float b) {
    return static_cast<std::int32_t>(f32_bits(a) - f32_bits(b));
  }
  static constexpr std::int32_t half(std::int32_t i) { return i >> 1; }
  static constexpr std::int32_t subtract(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
  }
  static constexpr float power_of_two(std::int32_t i) {
    return f32_from_bits((static_cast<std::uint32_t>(i) + 127u) << 23);
  }
};

/// e^x within 2 ulp for every finite result (below 1 ulp over all f32 values when it was measured);
/// exactly 1 at 0; infinity from the first x whose result exceeds the largest f32; subnormal
/// results are gradual, rounded once, then 0; NaN for NaN. Constant evaluation is for normal
/// results: compilers refuse it where it overflows, some where it underflows.
constexpr float exp_f32(float x) {
  return exp_steps<ScalarExpOps>(x);
}

}  // namespace megamoe
