#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "cpu/packed_weights.hpp"

namespace megamoe {
namespace {

TEST(PageMemory, WhatIsNotToBeHadIsNamed) {
  try {
    const PageMemory memory(std::int64_t{1} << 60, "a worker's scratch");
    ADD_FAILURE() << "2^60 bytes were mapped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976 bytes for a worker's scratch"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace megamoe
