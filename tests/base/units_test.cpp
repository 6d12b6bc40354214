#include "base/units.hpp"

#include <gtest/gtest.h>

namespace megamoe {
namespace {

using namespace std::chrono_literals;

TEST(Units, ATimeThatIsNotZeroNeverReadsAsZero) {
  EXPECT_EQ(as_text(30s), "30.0 s");
  EXPECT_EQ(as_text(400ms), "0.4 s");
  EXPECT_EQ(as_text(99ms), "99 ms");
  EXPECT_EQ(as_text(1500us), "1.5 ms");
  EXPECT_EQ(as_text(1500ns), "1.5 us");
  EXPECT_EQ(as_text(1ns), "1 ns");
  EXPECT_EQ(as_text(0ns), "0.0 s");
}

}  // namespace
}  // namespace megamoe
