// What the CPU kernels reach beside what the machine has: packed weights streamed from memory
// against the read bandwidth, and arithmetic at many rows against the peak of its vector units.
//
//   bench_cpu_kernels [instruction set] [most threads]
//
// Each figure is the best and the median of several runs. Weights exceed any cache unless many rows
// make the arithmetic the limit.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/names.hpp"
#include "cpu/kernels.hpp"
#include "cpu/packed_weights.hpp"

namespace megamoe {
namespace {

constexpr std::int64_t kBytes = std::int64_t{1} << 30;
constexpr std::int64_t kRuns = 7;
// The strips of one task, and the columns of a hidden size in the field.
constexpr std::int64_t kStrips = 8;
constexpr std::int64_t kChunks = 56;
// The panel of the engine's GEMM tasks, in floats.
constexpr std::int64_t kPanelFloats = 96 * 1024;

struct Seconds {
  double best;
  double median;
};

/// Wall time of `work(thread)` on all threads at once.
Seconds measure(std::int64_t threads, const std::function<void(std::int64_t)>& work) {
  std::vector<double> seconds;
  for (std::int64_t run = 0; run < kRuns; ++run) {
    std::barrier start(static_cast<std::ptrdiff_t>(threads + 1));
    std::vector<std::thread> team;
    for (std::int64_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        start.arrive_and_wait();
        work(t);
      });
    }
    start.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    for (std::thread& thread : team) thread.join();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

/// A chunk of the format with random codes, no NaN and no subnormal bf16 (which no model has and
/// which is slow), and scales around 1.
std::vector<std::byte> make_chunk(WeightFormat format) {
  std::mt19937 random(1);
  std::vector<std::byte> chunk(static_cast<std::size_t>(chunk_bytes(format)));
  for (std::byte& byte : chunk) byte = std::byte{static_cast<std::uint8_t>(random() & 0xBFu)};
  if (format == WeightFormat::bf16) {
    for (std::size_t i = 1; i < chunk.size(); i += 2) chunk[i] |= std::byte{0x38};
  }
  for (std::int64_t i = 0; i < chunk_header_bytes(format); i += 4) {
    const std::uint32_t fp4_scales = 0x7E7F'7E80u;
    const float fp8_scale = 0.75f;
    std::memcpy(chunk.data() + i,
                format == WeightFormat::fp4 ? static_cast<const void*>(&fp4_scales)
                                            : static_cast<const void*>(&fp8_scale),
                4);
  }
  return chunk;
}

void fill(WeightFormat format, std::byte* memory, std::int64_t bytes) {
  const std::vector<std::byte> chunk = make_chunk(format);
  const std::int64_t size = chunk_bytes(format);
  for (std::int64_t at = 0; at + size <= bytes; at += size) {
    std::memcpy(memory + at, chunk.data(), static_cast<std::size_t>(size));
  }
}

double read_bandwidth(const std::byte* memory, std::int64_t threads) {
  const std::int64_t share = kBytes / threads;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads * 8));
  const Seconds seconds = measure(threads, [&](std::int64_t t) {
    // Eight sums: the compiler makes vectors of them, and no chain of additions limits the stream.
    std::uint64_t sum[8] = {};
    const std::byte* from = memory + t * share;
    for (std::int64_t at = 0; at < share; at += 64) {
      std::uint64_t words[8];
      std::memcpy(words, from + at, sizeof words);
      for (int i = 0; i < 8; ++i) sum[i] += words[i];
    }
    for (int i = 0; i < 8; ++i) sums[static_cast<std::size_t>(t)] += sum[i];
  });
  if (std::all_of(sums.begin(), sums.end(), [](std::uint64_t sum) { return sum == 1; }))
    std::abort();
  return static_cast<double>(kBytes) / seconds.best * 1e-9;
}

/// All strips in [memory, memory + bytes) times `rows` rows, task by task, as the engine does it.
void multiply(const VectorKernels& kernels, WeightFormat format, const std::byte* memory,
              std::int64_t bytes, std::int64_t rows, const float* panel, float* sums) {
  const StripShape shape{format, kStrips, kChunks};
  const std::int64_t padded = kernels.padded_rows(rows);
  const std::int64_t step = max64(1, kPanelFloats / (padded * kChunkColumns));
  for (std::int64_t task = 0; task < bytes / shape.bytes(); ++task) {
    for (std::int64_t chunk = 0; chunk < kChunks; chunk += step) {
      kernels.accumulate({.format = format,
                          .weights = memory + task * shape.bytes() + chunk * chunk_bytes(format),
                          .strip_stride_bytes = shape.strip_bytes(),
                          .strips = kStrips,
                          .chunks = min64(step, kChunks - chunk),
                          .panel = panel,
                          .rows = rows,
                          .sums = sums});
    }
  }
}

void report(const VectorKernels& kernels, WeightFormat format, const std::byte* memory,
            std::int64_t threads, std::int64_t rows, double bandwidth) {
  const StripShape shape{format, kStrips, kChunks};
  const std::int64_t region = rows <= 16 ? kBytes : kBytes / 32;
  const std::int64_t tasks = region / threads / shape.bytes();
  const std::int64_t share = tasks * shape.bytes();
  std::vector<std::vector<float>> panels(static_cast<std::size_t>(threads));
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(threads));
  for (std::int64_t t = 0; t < threads; ++t) {
    panels[static_cast<std::size_t>(t)].assign(
        static_cast<std::size_t>(max64(kPanelFloats, rows * kChunkColumns)), 0.5f);
    sums[static_cast<std::size_t>(t)].assign(
        static_cast<std::size_t>(kStrips * kernels.padded_rows(rows) * kStripLanes), 0.0f);
  }
  const Seconds seconds = measure(threads, [&](std::int64_t t) {
    multiply(kernels, format, memory + t * share, share, rows,
             panels[static_cast<std::size_t>(t)].data(), sums[static_cast<std::size_t>(t)].data());
  });
  const double bytes = static_cast<double>(share * threads);
  const double flops = static_cast<double>(tasks * threads * kStrips * kChunks * 2 * kChunkColumns *
                                           kStripLanes * rows);
  const char* names[] = {"bf16", "fp4", "fp8"};
  fmt::print("{:5} {:7} {:5} {:9.1f} {:9.1f} {:8.0f} % {:9.1f} {:9.1f}\n",
             names[static_cast<int>(format)], threads, rows, bytes / seconds.best * 1e-9,
             bytes / seconds.median * 1e-9, 100 * bytes / seconds.best * 1e-9 / bandwidth,
             flops / seconds.best * 1e-9, flops / seconds.median * 1e-9);
  std::fflush(stdout);
}

void run(InstructionSet set, std::int64_t most_threads) {
  const VectorKernels& kernels = vector_kernels(set);
  const PageMemory memory(kBytes, "packed weights");
  for (std::int64_t threads = 1; threads <= most_threads; threads *= 2) {
    fill(WeightFormat::fp4, memory.data(), kBytes);
    const double bandwidth = read_bandwidth(memory.data(), threads);
    fmt::print("\n{}, {} threads, read bandwidth {:.1f} GB/s\n", name_of(set), threads, bandwidth);
    fmt::print("{:5} {:>7} {:>5} {:>9} {:>9} {:>10} {:>9} {:>9}\n", "", "threads", "rows", "GB/s",
               "median", "of read", "GFLOP/s", "median");
    for (const WeightFormat format : {WeightFormat::fp4, WeightFormat::fp8, WeightFormat::bf16}) {
      fill(format, memory.data(), kBytes);
      for (const std::int64_t rows : {1, 2, 4, 8, 12, 16, 24, 64, 128}) {
        report(kernels, format, memory.data(), threads, rows, bandwidth);
      }
    }
  }
}

}  // namespace
}  // namespace megamoe

int main(int argc, char** argv) {
  using namespace megamoe;
  const InstructionSet set = argc > 1 ? parse_instruction_set(argv[1]) : best_instruction_set();
  run(set, argc > 2 ? std::atoll(argv[2]) : 2);
}
