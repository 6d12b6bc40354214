// The MQA logits through the C interface.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/megamoe.h"
#include "megamoe/mqa_logits.hpp"

#include "mqa_data.hpp"

namespace megamoe::test {
namespace {

megamoe_mqa_queries to_c(const MqaQueries& from) {
  return {from.rows,
          from.heads,
          from.head_dim,
          from.q,
          MEGAMOE_MQA_E4M3,
          from.weights,
          static_cast<megamoe_mqa_weights>(from.weight_format)};
}

megamoe_mqa_input to_c(const MqaLogitsInput& from) {
  return {to_c(from.queries), from.keys,   from.kv,  MEGAMOE_MQA_E4M3,
          from.kv_scales,     from.begins, from.ends};
}

class CMqa : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(megamoe_mqa_create(2, MEGAMOE_BEST_INSTRUCTION_SET, &mqa), MEGAMOE_OK);
    wanted.resize(9 * 100);
    MqaLogits().run(data.input, MqaLogitsOutput{.logits = wanted.data(),
                                                .row_stride = 100,
                                                .outside = MqaOutside::minus_infinity});
  }
  void TearDown() override { megamoe_mqa_destroy(mqa); }

  megamoe_mqa* mqa = nullptr;
  DenseData data{{9, 100, 6, 64}, Ranges::ragged, MqaWeightFormat::f16, 1};
  std::vector<float> wanted;
  std::vector<float> logits = std::vector<float>(9 * 100);
  megamoe_mqa_output output{logits.data(), MEGAMOE_MQA_LOGITS_F32, 100, MEGAMOE_MQA_MINUS_INFINITY};
};

TEST_F(CMqa, GivesTheBitsOfTheCppInterface) {
  const megamoe_mqa_input input = to_c(data.input);
  ASSERT_EQ(megamoe_mqa_run(mqa, &input, &output), MEGAMOE_OK) << megamoe_last_error();
  EXPECT_EQ(std::memcmp(logits.data(), wanted.data(), wanted.size() * 4), 0);
}

TEST_F(CMqa, PagedGivesTheBitsOfTheCppInterface) {
  const PagedData paged({3, 2, 6, 32, 2}, MqaContextLengths::per_row, MqaWeightFormat::f32, 2);
  const PagedMqaLogitsInput& from = paged.input;
  const auto columns = from.max_context;
  std::vector<float> expected(static_cast<std::size_t>(6 * columns));
  MqaLogits().run(from, MqaLogitsOutput{.logits = expected.data(),
                                        .row_stride = columns,
                                        .outside = MqaOutside::minus_infinity});
  const megamoe_mqa_paged_input input{to_c(from.queries),   from.sequences,      from.next_n,
                                      from.cache,           MEGAMOE_MQA_E4M3,    from.blocks,
                                      from.context_lengths, MEGAMOE_MQA_PER_ROW, from.block_table,
                                      from.max_blocks,      from.max_context};
  std::vector<float> got(expected.size());
  output.logits = got.data();
  output.row_stride = columns;
  ASSERT_EQ(megamoe_mqa_run_paged(mqa, &input, &output), MEGAMOE_OK) << megamoe_last_error();
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * 4), 0);
}

TEST_F(CMqa, ChunksPassThroughOneBuffer) {
  struct User {
    const float* buffer;
    std::vector<float> all;
  } user{logits.data(), {}};
  const auto consumer = [](void* to, std::int64_t first_row, std::int64_t rows) {
    auto& it = *static_cast<User*>(to);
    EXPECT_EQ(first_row * 100, static_cast<std::int64_t>(it.all.size()));
    it.all.insert(it.all.end(), it.buffer, it.buffer + rows * 100);
  };
  const megamoe_mqa_input input = to_c(data.input);
  ASSERT_EQ(megamoe_mqa_run_in_chunks(mqa, &input, &output, 4 * 100 * 4, consumer, &user),
            MEGAMOE_OK)
      << megamoe_last_error();
  ASSERT_EQ(user.all.size(), wanted.size());
  EXPECT_EQ(std::memcmp(user.all.data(), wanted.data(), wanted.size() * 4), 0);
}

TEST_F(CMqa, ErrorsAreSentences) {
  megamoe_mqa_input input = to_c(data.input);
  input.kv_format = MEGAMOE_MQA_E2M1;
  EXPECT_EQ(megamoe_mqa_run(mqa, &input, &output), MEGAMOE_UNSUPPORTED);
  EXPECT_NE(std::string(megamoe_last_error()).find("kv is FP4"), std::string::npos);
  EXPECT_EQ(megamoe_mqa_run(nullptr, &input, &output), MEGAMOE_INVALID_ARGUMENT);
  input.kv_format = static_cast<megamoe_mqa_format>(2);
  EXPECT_EQ(megamoe_mqa_run(mqa, &input, &output), MEGAMOE_INVALID_ARGUMENT);
  EXPECT_EQ(megamoe_mqa_run(mqa, nullptr, &output), MEGAMOE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace megamoe::test
