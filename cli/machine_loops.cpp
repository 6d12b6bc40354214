// clang-format off: the order matters.
#include "cli/machine_loops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cli/machine_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace megamoe::cli {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float read_once(const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  auto c = hn::Zero(d);
  auto e = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, values + i));
    b = hn::Add(b, hn::LoadU(d, values + i + lanes));
    c = hn::Add(c, hn::LoadU(d, values + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, values + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// Twelve chains: two units of a latency of four cycles need eight, and registers hold more.
float multiply_add(std::int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, 0.001f);
  auto s0 = hn::Set(d, 0.f), s1 = hn::Set(d, 1.f), s2 = hn::Set(d, 2.f), s3 = hn::Set(d, 3.f);
  auto s4 = hn::Set(d, 4.f), s5 = hn::Set(d, 5.f), s6 = hn::Set(d, 6.f), s7 = hn::Set(d, 7.f);
  auto s8 = hn::Set(d, 8.f), s9 = hn::Set(d, 9.f), sa = hn::Set(d, 10.f), sb = hn::Set(d, 11.f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    sa = hn::MulAdd(sa, factor, term);
    sb = hn::MulAdd(sb, factor, term);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(sa, sb));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

std::int64_t operations_per_round() {
  return 2 * 12 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace megamoe::cli
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megamoe::cli {

HWY_EXPORT(read_once);
HWY_EXPORT(multiply_add);
HWY_EXPORT(operations_per_round);

float read_once(const float* values, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(read_once)(values, count);
}
float multiply_add(std::int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(multiply_add)(rounds);
}
std::int64_t operations_per_round() {
  return HWY_DYNAMIC_DISPATCH(operations_per_round)();
}

}  // namespace megamoe::cli
#endif
