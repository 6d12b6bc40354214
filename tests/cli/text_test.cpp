#include "cli/text.hpp"

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

TEST(Text, CountsTakeUnits) {
  EXPECT_EQ(parse_count("64"), 64);
  EXPECT_EQ(parse_count("4k"), 4000);
  EXPECT_EQ(parse_count("1.5k"), 1500);
  EXPECT_EQ(parse_count("2GiB"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_count("0"), 0);
}

TEST(Text, WhatIsNoCountIsRefusedWithItsText) {
  for (const char* text : {"", "k", "-1", "1.5", "4 k", "4x", "nan", "1e30", "0x"}) {
    try {
      parse_count(text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("'") + text + "'"), std::string::npos);
    }
  }
}

TEST(Text, ListsOfCountsTakeUnitsAndNoGaps) {
  EXPECT_EQ(parse_counts("1,4k,16"), (std::vector<std::int64_t>{1, 4000, 16}));
  EXPECT_EQ(parse_counts("7"), (std::vector<std::int64_t>{7}));
  for (const char* text : {"", ",", "1,", "1,,2", "1,x"}) EXPECT_THROW(parse_counts(text), Error);
  EXPECT_EQ(parse_positive("1"), 1);
  EXPECT_THROW(parse_positive("0"), Error);
}

TEST(Text, TimesAreRoundedUpAndBounded) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_seconds("30"), 30s);
  EXPECT_EQ(parse_seconds("0.5"), 500ms);
  EXPECT_EQ(parse_seconds("0"), 0ns);
  EXPECT_EQ(parse_seconds("1e-12"), 1ns);
  EXPECT_EQ(parse_seconds("1e8"), 100'000'000s);
  for (const char* text : {"", "nan", "inf", "-1", "1e30", "1s", "x"}) {
    try {
      parse_seconds(text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(std::string("'") + text + "'"), std::string::npos);
    }
  }
}

TEST(Text, BytesHaveBinaryUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::int64_t{3} << 40), "3.0 TiB");
}

TEST(Text, TablesAlignTheirColumns) {
  Table table({"a", "bb"});
  table.add({"long", "1"});
  EXPECT_EQ(table.str(), "a     bb\nlong   1\n");
}

TEST(Text, DurationsHaveThreeDigits) {
  EXPECT_EQ(duration(1234), "1.23 us");
  EXPECT_EQ(duration(1234567), "1.23 ms");
  EXPECT_EQ(duration(2500000000), "2.5 s");
}

}  // namespace
}  // namespace megamoe::cli
