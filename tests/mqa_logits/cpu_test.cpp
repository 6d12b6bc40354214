// The CPU backend of the MQA logits against the f64 reference.
#include <limits>
#include <numeric>

#include "megamoe/error.hpp"

#include "cpu/kernels.hpp"
#include "mqa_data.hpp"
#include "mqa_expect.hpp"
#include "mqa_logits/reference.hpp"

namespace megamoe::test {
namespace {

constexpr float kPoison = 12345.0f;

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
    if (has_instruction_set(set)) sets.push_back(set);
  }
  return sets;
}

std::int64_t columns_of(const MqaLogitsInput& input) {
  return input.keys;
}
std::int64_t columns_of(const PagedMqaLogitsInput& input) {
  return input.max_context;
}

template <class Input>
std::vector<float> run(const Input& input, const MqaLogitsOptions& options = {},
                       MqaOutside outside = MqaOutside::minus_infinity) {
  const std::int64_t columns = columns_of(input);
  std::vector<float> logits(static_cast<std::size_t>(input.queries.rows * columns), kPoison);
  MqaLogits(options).run(input,
                         {.logits = logits.data(), .row_stride = columns, .outside = outside});
  return logits;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(f32_bits(got[i]), f32_bits(wanted[i])) << "element " << i;
  }
}

TEST(MqaCpu, MatchesTheReferenceForEveryDimensionAndManyHeads) {
  for (const std::int64_t head_dim : {32, 64, 128}) {
    for (const std::int64_t heads : {1, 3, 8, 24, 64}) {
      SCOPED_TRACE(testing::Message() << heads << " heads of " << head_dim);
      for (const auto format : {MqaWeightFormat::f32, MqaWeightFormat::f16}) {
        const DenseData data({11, 150, heads, head_dim}, Ranges::ragged, format, 1);
        expect_close(run(data.input), mqa::reference(data.input), 150, 1e-6);
      }
    }
  }
}

TEST(MqaCpu, GivesTheSameBitsWithEveryInstructionSetAndNumberOfWorkers) {
  const DenseData data({19, 1100, 7, 64}, Ranges::causal, MqaWeightFormat::f32, 2);
  const auto wanted = run(data.input, {.workers = 1, .instruction_set = InstructionSet::scalar});
  for (const InstructionSet set : instruction_sets()) {
    for (const std::int64_t workers : {1, 3}) {
      expect_same_bits(run(data.input, {.workers = workers, .instruction_set = set}), wanted);
    }
  }
}

TEST(MqaCpu, LeavesWhatIsOutsideARangeAloneUnlessAskedToCleanIt) {
  const DenseData data({20, 90, 4, 32}, Ranges::ragged, MqaWeightFormat::f32, 3);
  const auto logits = run(data.input, {}, MqaOutside::unspecified);
  const auto reference = mqa::reference(data.input);
  std::size_t outside = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isinf(reference[i])) continue;
    ++outside;
    ASSERT_EQ(logits[i], kPoison) << "row " << i / 90 << ", key " << i % 90;
  }
  EXPECT_GT(outside, 100u);
}

TEST(MqaCpu, WritesNothingBeyondTheColumnsOfARow) {
  const DenseData data({6, 70, 4, 32}, Ranges::whole, MqaWeightFormat::f32, 4);
  std::vector<float> logits(6 * 80, kPoison);
  MqaLogits().run(
      data.input,
      {.logits = logits.data(), .row_stride = 80, .outside = MqaOutside::minus_infinity});
  const auto wanted = run(data.input);
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t j = 0; j < 80; ++j) {
      ASSERT_EQ(logits[row * 80 + j], j < 70 ? wanted[row * 70 + j] : kPoison);
    }
  }
}

TEST(MqaCpu, Bf16IsTheRoundedF32) {
  const DenseData data({5, 130, 9, 128}, Ranges::ragged, MqaWeightFormat::f16, 5);
  std::vector<BFloat16> logits(5 * 130);
  MqaLogits().run(data.input, {.logits = logits.data(),
                               .format = MqaLogitFormat::bf16,
                               .row_stride = 130,
                               .outside = MqaOutside::minus_infinity});
  const auto wanted = run(data.input);
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(logits[i], to_bf16(wanted[i])) << i;
}

TEST(MqaCpu, NaNReachesItsOwnLogitsAndNoOther) {
  DenseData data({3, 100, 8, 32}, Ranges::whole, MqaWeightFormat::f32, 6);
  data.kv[40 * 32 + 7] = std::byte{0xFF};
  data.queries.q[(1 * 8 + 2) * 32 + 31] = std::byte{kE4m3NaN};
  const auto wanted = mqa::reference(data.input);
  for (const InstructionSet set : instruction_sets()) {
    const auto logits = run(data.input, {.instruction_set = set});
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(std::isnan(logits[i]), i / 100 == 1 || i % 100 == 40) << i;
    }
    expect_close(logits, wanted, 100, 1e-6);
  }
}

TEST(MqaCpu, TheLargestFiniteInputsGiveFiniteLogits) {
  DenseData data({2, 64, 64, 128}, Ranges::whole, MqaWeightFormat::f16, 7);
  std::fill(data.queries.q.begin(), data.queries.q.end(), std::byte{kE4m3MaxByte});
  std::fill(data.kv.begin(), data.kv.end(), std::byte{kE4m3MaxByte});
  std::fill(data.queries.f16.begin(), data.queries.f16.end(), std::uint16_t{0x7BFF});
  expect_close(run(data.input), mqa::reference(data.input), 64, 1e-6);
}

TEST(MqaCpu, PagedMatchesTheReference) {
  for (const auto kind : {MqaContextLengths::per_sequence, MqaContextLengths::per_row}) {
    for (const std::int64_t next_n : {1, 2, 4, 11}) {
      SCOPED_TRACE(testing::Message() << next_n << " new tokens");
      const PagedData data({5, next_n, 12, 64, 4}, kind, MqaWeightFormat::f32, 8);
      expect_close(run(data.input), mqa::reference(data.input), data.input.max_context, 1e-6);
    }
  }
}

TEST(MqaCpu, PagedGivesTheBitsOfTheSameKeysInOnePiece) {
  const PagedData paged({1, 2, 6, 32, 5}, MqaContextLengths::per_row, MqaWeightFormat::f32, 9);
  const std::int64_t keys = paged.input.max_context;
  std::vector<std::byte> kv;
  std::vector<float> scales(5 * 64);
  for (std::size_t b = 0; b < 5; ++b) {
    if (paged.table[b] < 0) continue;
    const std::byte* block = paged.cache.data() + paged.table[b] * 64 * 36;
    kv.insert(kv.end(), block, block + 64 * 32);
    std::memcpy(scales.data() + b * 64, block + 64 * 32, 256);
  }
  const std::vector<std::int32_t> ends = paged.contexts;
  const MqaLogitsInput dense{.queries = paged.queries.view,
                             .keys = keys,
                             .kv = kv.data(),
                             .kv_scales = scales.data(),
                             .ends = ends.data()};
  expect_same_bits(run(paged.input), run(dense));
}

TEST(MqaCpu, ABlockTableEntryThatIsNoBlockIsRefused) {
  PagedData data({2, 1, 4, 32, 3}, MqaContextLengths::per_sequence, MqaWeightFormat::f32, 10);
  data.table[3] = 99;
  try {
    run(data.input);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("block_table[1][0] is 99"), std::string::npos)
        << error.what();
  }
}

TEST(MqaCpu, ChunksGiveTheBitsOfTheWhole) {
  const DenseData data({17, 200, 5, 64}, Ranges::ragged, MqaWeightFormat::f32, 11);
  const auto wanted = run(data.input);
  std::vector<float> buffer(200 * 5);
  std::vector<float> logits;
  MqaLogits().run(
      data.input,
      MqaChunkBuffer{
          {.logits = buffer.data(), .row_stride = 200, .outside = MqaOutside::minus_infinity},
          200 * 5 * 4},
      [&](const MqaChunk& chunk) {
        EXPECT_EQ(chunk.first_row * 200, static_cast<std::int64_t>(logits.size()));
        logits.insert(logits.end(), buffer.begin(), buffer.begin() + chunk.rows * 200);
      });
  expect_same_bits(logits, wanted);
}

TEST(MqaCpu, NothingToDoIsDone) {
  MqaLogits cpu;
  cpu.run(MqaLogitsInput{.queries = {.rows = 0, .heads = 4, .head_dim = 32}, .keys = 8},
          {.row_stride = 8});
  cpu.run(MqaLogitsInput{.queries = {.rows = 3, .heads = 4, .head_dim = 32}, .keys = 0}, {});
  cpu.run(PagedMqaLogitsInput{.queries = {.rows = 0, .heads = 4, .head_dim = 32}}, {});
}

}  // namespace
}  // namespace megamoe::test
