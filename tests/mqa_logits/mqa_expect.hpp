// Logits against what was wanted.
#pragma once

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace megamoe::test {

/// Relative L2 distance where `wanted` is finite; elsewhere the two must agree on what they are.
inline void expect_close(const std::vector<float>& got, const std::vector<double>& wanted,
                         std::int64_t columns, double bound) {
  ASSERT_EQ(got.size(), wanted.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(wanted[i])) {
      const bool same =
          std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == static_cast<float>(wanted[i]);
      ASSERT_TRUE(same) << "row " << i / columns << ", key " << i % columns << ": got " << got[i]
                        << ", wanted " << wanted[i];
      continue;
    }
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  if (difference <= bound * bound * norm) return;
  const double typical = std::sqrt(norm / static_cast<double>(got.size()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(wanted[i]) || std::fabs(got[i] - wanted[i]) <= 4 * bound * typical) continue;
    FAIL() << "relative L2 " << std::sqrt(difference / norm) << "; first at row " << i / columns
           << ", key " << i % columns << ": got " << got[i] << ", wanted " << wanted[i];
  }
  FAIL() << "relative L2 " << std::sqrt(difference / norm);
}

}  // namespace megamoe::test
