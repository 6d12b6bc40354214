// Conversions against the golden tables.
#pragma once

#include <cstdint>
#include <ios>
#include <iterator>

#include <gtest/gtest.h>

#include "numerics/chosen_floats.hpp"
#include "numerics/golden/bf16.hpp"
#include "numerics/golden/domains.hpp"
#include "numerics/golden/e2m1.hpp"
#include "numerics/golden/e4m3.hpp"
#include "numerics/golden/f16.hpp"
#include "numerics/golden/ue8m0.hpp"

namespace megamoe::test {

/// Succeeds where `encode` gives the table's result for every chosen float, else names the first
/// that differs.
template <class Encode, class Code, std::size_t count>
::testing::AssertionResult encodes_as_golden(Encode encode, const Code (&table)[count]) {
  const std::vector<std::uint32_t> chosen = chosen_floats();
  if (chosen.size() != count) {
    return ::testing::AssertionFailure()
           << "the table has " << count << " results for " << chosen.size()
           << " chosen floats: make it again with make_numerics_golden";
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t got = encode(f32_from_bits(chosen[i]));
    if (got != table[i]) {
      return ::testing::AssertionFailure() << std::hex << "f32 0x" << chosen[i] << ": got 0x" << got
                                           << ", golden 0x" << std::uint32_t{table[i]};
    }
  }
  return ::testing::AssertionSuccess();
}

/// Succeeds where `decode` gives the table's f32 for every code of the domain (NaN for NaN), else
/// names the first.
template <class Decode, std::size_t count>
::testing::AssertionResult decodes_as_golden(Decode decode, DecodeDomain domain,
                                             const std::uint32_t (&table)[count]) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = static_cast<std::uint32_t>(i) * domain.step;
    const float got = decode(code);
    const float wanted = f32_from_bits(table[i]);
    if (is_nan(wanted) ? !is_nan(got) : f32_bits(got) != table[i]) {
      return ::testing::AssertionFailure() << std::hex << "code 0x" << code << ": got 0x"
                                           << f32_bits(got) << ", golden 0x" << table[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace megamoe::test
