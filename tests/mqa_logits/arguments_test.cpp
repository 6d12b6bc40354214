// What the MQA logits refuse, clip and cut.
#include "mqa_logits/arguments.hpp"

#include <string>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "mqa_data.hpp"

namespace megamoe::test {
namespace {

template <class Input>
std::string refusal(const Input& input, const MqaLogitsOutput& output, ErrorCode code) {
  try {
    mqa::validate(input, output);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  return "";
}

#define EXPECT_REFUSED(input, output, code, part)                                  \
  EXPECT_NE(refusal(input, output, ErrorCode::code).find(part), std::string::npos) \
      << refusal(input, output, ErrorCode::code)

class MqaArguments : public testing::Test {
 protected:
  DenseData dense{{4, 100, 8, 64}, Ranges::causal, MqaWeightFormat::f32, 1};
  PagedData paged{{2, 2, 8, 64, 3}, MqaContextLengths::per_sequence, MqaWeightFormat::f16, 2};
  std::vector<float> logits = std::vector<float>(1000);
  MqaLogitsOutput output{.logits = logits.data(), .row_stride = 200};
};

TEST_F(MqaArguments, GoodOnesAreAccepted) {
  EXPECT_EQ(refusal(dense.input, output, ErrorCode::internal), "");
  EXPECT_EQ(refusal(paged.input, output, ErrorCode::internal), "");
}

TEST_F(MqaArguments, Fp4IsRefusedByName) {
  MqaLogitsInput input = dense.input;
  input.queries.format = MqaFormat::e2m1;
  EXPECT_REFUSED(input, output, unsupported, "q is FP4");
  input = dense.input;
  input.kv_format = MqaFormat::e2m1;
  EXPECT_REFUSED(input, output, unsupported, "kv is FP4");
  PagedMqaLogitsInput pages = paged.input;
  pages.cache_format = MqaFormat::e2m1;
  EXPECT_REFUSED(pages, output, unsupported, "the cache is FP4");
}

TEST_F(MqaArguments, ShapesThatCannotBeAreRefused) {
  const auto with = [&](auto change) {
    MqaLogitsInput input = dense.input;
    change(input);
    return input;
  };
  using Input = MqaLogitsInput;
  EXPECT_REFUSED(with([](Input& i) { i.queries.heads = 65; }), output, invalid_argument, "heads");
  EXPECT_REFUSED(with([](Input& i) { i.queries.heads = 0; }), output, invalid_argument, "heads");
  EXPECT_REFUSED(with([](Input& i) { i.queries.head_dim = 96; }), output, invalid_argument,
                 "head_dim is 96: 32, 64 or 128");
  EXPECT_REFUSED(with([](Input& i) { i.queries.rows = -1; }), output, invalid_argument, "rows");
  EXPECT_REFUSED(with([](Input& i) { i.keys = std::int64_t{1} << 31; }), output, invalid_argument,
                 "keys");
  EXPECT_REFUSED(with([](Input& i) { i.kv = nullptr; }), output, invalid_argument, "kv is null");
  MqaLogitsOutput narrow = output;
  narrow.row_stride = 99;
  EXPECT_REFUSED(dense.input, narrow, invalid_argument, "row_stride is 99: at least the 100");
  MqaLogitsOutput askew = output;
  askew.logits = reinterpret_cast<std::byte*>(logits.data()) + 2;
  EXPECT_REFUSED(dense.input, askew, invalid_argument, "aligned");
  askew.format = MqaLogitFormat::bf16;
  EXPECT_EQ(refusal(dense.input, askew, ErrorCode::internal), "");
}

TEST_F(MqaArguments, PagedShapesThatCannotBeAreRefused) {
  PagedMqaLogitsInput input = paged.input;
  input.next_n = 3;
  EXPECT_REFUSED(input, output, invalid_argument, "sequences * next_n");
  input = paged.input;
  input.max_context = 3 * 64 + 1;
  EXPECT_REFUSED(input, output, invalid_argument, "max_context");
  input = paged.input;
  input.block_table = nullptr;
  EXPECT_REFUSED(input, output, invalid_argument, "block_table is null");
}

TEST_F(MqaArguments, RangesAreClippedAndEmptyOnesAreNothing) {
  const auto clipped = [](std::int64_t begin, std::int64_t end) {
    const mqa::KeyRange range = mqa::clip(begin, end, 100);
    return std::pair(range.begin, range.end);
  };
  EXPECT_EQ(clipped(-5, 7), std::pair(std::int64_t{0}, std::int64_t{7}));
  EXPECT_EQ(clipped(50, 1000), std::pair(std::int64_t{50}, std::int64_t{100}));
  for (const auto& [begin, end] :
       {std::pair{7, 7}, std::pair{8, 7}, std::pair{100, 200}, std::pair{-9, -1}}) {
    EXPECT_EQ(clipped(begin, end), std::pair(std::int64_t{0}, std::int64_t{0}));
  }
}

TEST_F(MqaArguments, NewTokensSeeOneKeyMoreEach) {
  const std::int32_t lengths[] = {10, 2};
  const auto seen = [&](std::int64_t sequence, std::int64_t token) {
    return mqa::context_of(lengths, MqaContextLengths::per_sequence, sequence, token, 3, 9).end;
  };
  EXPECT_EQ(seen(0, 0), 8);
  EXPECT_EQ(seen(0, 1), 9);
  EXPECT_EQ(seen(0, 2), 9) << "clipped to max_context";
  EXPECT_EQ(seen(1, 0), 0);
  EXPECT_EQ(seen(1, 1), 1);
}

TEST_F(MqaArguments, ChunksCoverEveryRowOnceWithinTheBuffer) {
  const MqaChunkBuffer buffer{output, 200 * 4 * 3 + 17};
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
  mqa::for_each_chunk(dense.input, buffer, [&](const MqaLogitsInput& part, const MqaChunk& chunk) {
    EXPECT_EQ(part.queries.rows, chunk.rows);
    EXPECT_EQ(part.queries.q, dense.input.queries.q + chunk.first_row * 8 * 64);
    EXPECT_EQ(part.queries.weights, dense.queries.f32.data() + chunk.first_row * 8);
    EXPECT_EQ(part.ends, dense.ends.data() + chunk.first_row);
    chunks.emplace_back(chunk.first_row, chunk.rows);
  });
  const std::vector<std::pair<std::int64_t, std::int64_t>> wanted = {{0, 3}, {3, 1}};
  EXPECT_EQ(chunks, wanted);
  EXPECT_THROW(mqa::rows_per_chunk(dense.input, {output, 799}), Error);
}

}  // namespace
}  // namespace megamoe::test
