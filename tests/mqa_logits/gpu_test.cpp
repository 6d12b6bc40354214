// The Hopper backend of the MQA logits. Needs such a GPU; skips without one.
#include <functional>
#include <string>

#include "megamoe/error.hpp"

#include "mqa_expect.hpp"
#include "mqa_gpu.hpp"

namespace megamoe::test {
namespace {

class MqaGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (device::usable_devices() == 0) GTEST_SKIP() << "no GPU of compute capability 9.0";
  }
};

/// Relative L2 distances that the two paths keep from f64: tensor cores and f32 sums; f16.
double bound_of(MqaWeightFormat format) {
  return format == MqaWeightFormat::f32 ? 2e-4 : 1e-3;
}

constexpr MqaWeightFormat kFormats[] = {MqaWeightFormat::f32, MqaWeightFormat::f16};

template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  if (std::memcmp(got.data(), wanted.data(), got.size() * sizeof(T)) == 0) return;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &wanted[i], sizeof(T)), 0) << what << ", element " << i;
  }
}

TEST_F(MqaGpu, MatchesForEveryDimensionAndNumberOfHeads) {
  for (const std::int64_t head_dim : {32, 64, 128}) {
    for (const std::int64_t heads : {1, 8, 16, 20, 32, 48, 64}) {
      for (const auto format : kFormats) {
        for (const Ranges ranges : {Ranges::whole, Ranges::causal, Ranges::ragged}) {
          SCOPED_TRACE(testing::Message() << heads << " heads of " << head_dim << ", weights "
                                          << (format == MqaWeightFormat::f32 ? "f32" : "f16")
                                          << ", ranges " << static_cast<int>(ranges));
          const DenseData data({21, 531, heads, head_dim}, ranges, format, 1);
          expect_close(run_on_gpu(GpuDense(data).input), run_on_cpu(data.input), 531,
                       bound_of(format));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(MqaGpu, MatchesForOddNumbersOfRowsAndKeys) {
  for (const std::int64_t rows : {1, 2, 3, 5, 133, 600}) {
    for (const std::int64_t keys : {1, 63, 64, 65, 128, 129, 1500}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << keys << " keys");
      for (const auto format : kFormats) {
        const DenseData data({rows, keys, 64, 32}, Ranges::ragged, format, 2);
        expect_close(run_on_gpu(GpuDense(data).input), run_on_cpu(data.input), keys,
                     bound_of(format));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(MqaGpu, WritesInsideTheRangesAloneUnlessAskedToClean) {
  constexpr std::int64_t kKeys = 300;
  constexpr std::int64_t kStride = 333;
  const DenseData data({77, kKeys, 32, 64}, Ranges::ragged, MqaWeightFormat::f32, 3);
  const GpuDense gpu(data);
  const auto wanted = run_on_cpu(data.input);
  std::uint32_t poison = 0;
  std::memset(&poison, kPoisonByte, sizeof poison);
  for (const auto outside : {MqaOutside::unspecified, MqaOutside::minus_infinity}) {
    const auto logits = run_on_gpu<float>(gpu.input, kStride, outside);
    for (std::int64_t i = 0; i < std::ssize(logits); ++i) {
      const std::int64_t row = i / kStride;
      const std::int64_t key = i % kStride;
      const float got = logits[static_cast<std::size_t>(i)];
      const bool inside =
          key < kKeys && !std::isinf(wanted[static_cast<std::size_t>(row * kKeys + key)]);
      const bool cleaned = key < kKeys && outside == MqaOutside::minus_infinity;
      if (inside) {
        ASSERT_TRUE(std::isfinite(got) && f32_bits(got) != poison) << row << ", " << key;
      } else if (cleaned) {
        ASSERT_EQ(f32_bits(got), 0xFF80'0000u) << row << ", " << key;
      } else {
        ASSERT_EQ(f32_bits(got), poison) << row << ", " << key;
      }
    }
  }
}

TEST_F(MqaGpu, Bf16IsTheRoundedF32) {
  const DenseData data({50, 401, 64, 128}, Ranges::ragged, MqaWeightFormat::f32, 4);
  const GpuDense gpu(data);
  const auto f32 = run_on_gpu(gpu.input);
  std::vector<BFloat16> wanted;
  for (const float value : f32) wanted.push_back(to_bf16(value));
  expect_same(run_on_gpu<BFloat16>(gpu.input, 401), wanted, "bf16");
}

TEST_F(MqaGpu, ALogitDependsOnItsRowAndItsKeyAlone) {
  for (const auto format : kFormats) {
    const DenseData data({90, 1000, 64, 128}, Ranges::whole, format, 5);
    const GpuDense gpu(data);
    const auto all = run_on_gpu(gpu.input);
    for (const std::int64_t row : {0, 3, 41, 89}) {
      MqaLogitsInput one = gpu.input;
      one.queries.rows = 1;
      one.queries.q += row * 64 * 128;
      one.queries.weights = static_cast<const std::byte*>(one.queries.weights) +
                            row * 64 * (format == MqaWeightFormat::f32 ? 4 : 2);
      one.kv += 320 * 128;
      one.kv_scales += 320;
      one.keys = 400;
      const auto logits = run_on_gpu(one);
      const auto from = all.begin() + row * 1000 + 320;
      expect_same(logits, std::vector<float>(from, from + 400), "alone");
    }
  }
}

TEST_F(MqaGpu, AThousandCallsGiveTheSameBits) {
  for (const auto format : kFormats) {
    const DenseData data({64, 4000, 64, 128}, Ranges::causal, format, 6);
    const GpuDense gpu(data);
    const auto wanted = run_on_gpu(gpu.input);
    const device::Memory expected = upload(wanted);
    device::Memory logits(expected.bytes(), "logits");
    device::Stream stream;
    std::vector<float> got(wanted.size());
    for (int repeat = 0; repeat < 1000; ++repeat) {
      device::check(cudaMemsetAsync(logits.get(), repeat, static_cast<std::size_t>(logits.bytes()),
                                    stream.get()),
                    "poisoning logits");
      mqa_logits_on_gpu(
          gpu.input,
          {.logits = logits.get(), .row_stride = 4000, .outside = MqaOutside::minus_infinity},
          stream.get());
      device::check(
          cudaMemcpyAsync(got.data(), logits.get(), static_cast<std::size_t>(logits.bytes()),
                          cudaMemcpyDeviceToHost, stream.get()),
          "reading logits");
      stream.wait();
      expect_same(got, wanted, "repeat");
      if (HasFailure()) return;
    }
  }
}

TEST_F(MqaGpu, NaNReachesItsOwnLogitsAndNoOther) {
  for (const auto format : kFormats) {
    DenseData data({9, 300, 64, 64}, Ranges::whole, format, 7);
    data.kv[40 * 64 + 7] = std::byte{0xFF};
    data.queries.q[(1 * 64 + 2) * 64 + 31] = std::byte{kE4m3NaN};
    const auto logits = run_on_gpu(GpuDense(data).input);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(std::isnan(logits[i]), i / 300 == 1 || i % 300 == 40) << i;
    }
    expect_close(logits, run_on_cpu(data.input), 300, bound_of(format));
  }
}

TEST_F(MqaGpu, FiniteInputsAtTheEndsOfTheirFormatsGiveFiniteLogits) {
  constexpr std::uint16_t kLargestF16 = 0x7BFF;
  for (const auto format : kFormats) {
    for (const std::uint8_t key : {0x7E, 0xFE, 0x01, 0x08}) {
      for (const std::uint16_t weight : {kLargestF16, std::uint16_t{1}, std::uint16_t{0xFBFF}}) {
        SCOPED_TRACE(testing::Message() << "key byte " << int{key} << ", weight " << weight);
        DenseData data({5, 200, 64, 128}, Ranges::whole, format, 8);
        std::fill(data.queries.q.begin(), data.queries.q.end(), std::byte{kE4m3MaxByte});
        std::fill(data.kv.begin(), data.kv.end(), std::byte{key});
        std::fill(data.queries.f16.begin(), data.queries.f16.end(), weight);
        std::fill(data.queries.f32.begin(), data.queries.f32.end(), f16_to_float(weight));
        const auto logits = run_on_gpu(GpuDense(data).input);
        for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit)) << logit;
        expect_close(logits, run_on_cpu(data.input), 200, bound_of(format));
      }
    }
  }
}

TEST_F(MqaGpu, TinyQueriesKeepTheirAccuracyWithF16Weights) {
  DenseData data({8, 256, 64, 128}, Ranges::whole, MqaWeightFormat::f16, 9);
  for (std::byte& b : data.queries.q) b = (b & std::byte{0x80}) | (b & std::byte{0x07});
  expect_close(run_on_gpu(GpuDense(data).input), run_on_cpu(data.input), 256, 1e-3);
}

TEST_F(MqaGpu, PagedMatches) {
  for (const auto kind : {MqaContextLengths::per_sequence, MqaContextLengths::per_row}) {
    for (const std::int64_t next_n : {1, 2, 3, 6}) {
      for (const std::int64_t heads : {16, 32, 64}) {
        for (const auto format : kFormats) {
          SCOPED_TRACE(testing::Message() << next_n << " new tokens, " << heads << " heads");
          const PagedData data({40, next_n, heads, 128, 9}, kind, format, 10);
          expect_close(run_on_gpu(GpuPaged(data).input), run_on_cpu(data.input),
                       data.input.max_context, bound_of(format));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(MqaGpu, ABlockTableEntryThatIsNoBlockGivesNaNForItsKeys) {
  PagedData data({3, 1, 64, 128, 4}, MqaContextLengths::per_row, MqaWeightFormat::f32, 11);
  data.contexts = {200, 200, 200};
  for (std::size_t i = 0; i < data.table.size(); ++i) data.table[i] = static_cast<int>(i);
  data.table[5] = 99999;
  data.table[10] = -7;
  const auto logits = run_on_gpu(GpuPaged(data).input);
  const auto columns = static_cast<std::size_t>(data.input.max_context);
  for (std::size_t s = 0; s < 3; ++s) {
    for (std::size_t j = 0; j < 200; ++j) {
      const bool broken = (s == 1 && j / 64 == 1) || (s == 2 && j / 64 == 2);
      ASSERT_EQ(std::isnan(logits[s * columns + j]), broken) << s << ", " << j;
    }
  }
}

TEST_F(MqaGpu, ChunksGiveTheBitsOfTheWhole) {
  const DenseData data({100, 700, 32, 128}, Ranges::ragged, MqaWeightFormat::f16, 12);
  const GpuDense gpu(data);
  const auto wanted = run_on_gpu(gpu.input);
  device::Memory buffer(700 * 4 * 30, "a chunk");
  device::Stream stream;
  std::vector<float> got(wanted.size());
  const MqaLogitsOutput output{
      .logits = buffer.get(), .row_stride = 700, .outside = MqaOutside::minus_infinity};
  mqa_logits_on_gpu(
      gpu.input, MqaChunkBuffer{output, buffer.bytes()},
      [&](const MqaChunk& chunk) {
        device::check(cudaMemcpyAsync(got.data() + chunk.first_row * 700, buffer.get(),
                                      static_cast<std::size_t>(chunk.rows * 700 * 4),
                                      cudaMemcpyDeviceToHost, stream.get()),
                      "reading a chunk");
      },
      stream.get());
  stream.wait();
  expect_same(got, wanted, "chunks");
}

/// Keys, then logits, at offsets beyond 2^31: keys that repeat give logits that repeat.
TEST_F(MqaGpu, OffsetsBeyondTwoToThe31Work) {
  constexpr std::int64_t kPeriod = 1 << 16;
  constexpr std::int64_t kRepeats = 258;
  constexpr std::int64_t kKeys = kPeriod * kRepeats;
  static_assert(kKeys * 128 > (std::int64_t{1} << 31));
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  const DenseData data({3, kPeriod, 16, 128}, Ranges::whole, MqaWeightFormat::f32, 13);
  const GpuDense gpu(data);
  const auto wanted = run_on_gpu(gpu.input);
  device::Memory kv(kKeys * 128, "keys");
  device::Memory scales(kKeys * 4, "scales");
  for (std::int64_t i = 0; i < kRepeats; ++i) {
    kv.copy_from(data.kv.data(), kPeriod * 128, i * kPeriod * 128);
    scales.copy_from(data.scales.data(), kPeriod * 4, i * kPeriod * 4);
  }
  MqaLogitsInput input = gpu.input;
  input.keys = kKeys;
  input.kv = kv.as<std::byte>();
  input.kv_scales = scales.as<float>();
  device::Memory logits(2 * kStride * 4 + kKeys * 4, "logits");
  device::Stream stream;
  mqa_logits_on_gpu(input, {.logits = logits.get(), .row_stride = kStride}, stream.get());
  stream.wait();
  std::vector<float> got(static_cast<std::size_t>(kPeriod));
  for (std::int64_t row = 0; row < 3; ++row) {
    const std::vector<float> expected(wanted.begin() + row * kPeriod,
                                      wanted.begin() + (row + 1) * kPeriod);
    for (const std::int64_t part : {std::int64_t{0}, kRepeats / 2, kRepeats - 1}) {
      device::check(cudaMemcpy(got.data(), logits.as<float>() + row * kStride + part * kPeriod,
                               static_cast<std::size_t>(kPeriod * 4), cudaMemcpyDeviceToHost),
                    "reading logits");
      expect_same(got, expected, "far away");
    }
  }
}

TEST_F(MqaGpu, MisalignedKeysAreRefused) {
  const DenseData data({4, 64, 16, 64}, Ranges::whole, MqaWeightFormat::f32, 14);
  const GpuDense gpu(data);
  MqaLogitsInput input = gpu.input;
  input.kv += 8;
  device::Memory logits(4 * 64 * 4, "logits");
  try {
    mqa_logits_on_gpu(input, {.logits = logits.get(), .row_stride = 64}, nullptr);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kv is not aligned to 16 bytes"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace megamoe::test
