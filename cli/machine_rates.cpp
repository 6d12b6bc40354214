#include "cli/machine_rates.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "api/layer_plan.hpp"
#include "base/integers.hpp"
#include "cli/machine_loops.hpp"
#include "cpu/packed_weights.hpp"
#include "symmetric/host_memory.hpp"

namespace megamoe::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kWindows = 4;
constexpr std::chrono::milliseconds kWindow{50};
// Between two looks at the clock: some 100 us of either loop.
constexpr std::int64_t kPieceFloats = 512 * 1024;
constexpr std::int64_t kPieceRounds = 50'000;
// Four times the last cache, so that next to nothing is found there; bounded, since touching takes
// time.
constexpr std::int64_t kLeastBytes = std::int64_t{128} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

/// Work per nanosecond of all threads together: `piece(thread, n)` does one piece and returns its
/// work.
double rate_of(std::int64_t threads,
               const std::function<std::int64_t(std::int64_t thread, std::int64_t n)>& piece) {
  double best = 0;
  for (int window = 0; window < kWindows; ++window) {
    std::atomic<std::int64_t> work{0};
    const auto begin = SteadyClock::now();
    std::vector<std::thread> team;
    for (std::int64_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        std::int64_t mine = 0;
        for (std::int64_t n = 0; SteadyClock::now() - begin < kWindow; ++n) mine += piece(t, n);
        work += mine;
      });
    }
    for (std::thread& thread : team) thread.join();
    const std::chrono::duration<double, std::nano> elapsed = SteadyClock::now() - begin;
    best = std::max(best, static_cast<double>(work.load()) / elapsed.count());
  }
  return best;
}

/// Pieces of memory per thread.
std::int64_t pieces_per_thread(std::int64_t threads) {
  const std::int64_t cache = max64(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  const std::int64_t wanted = std::clamp(4 * cache, kLeastBytes, kMostBytes);
  const std::int64_t bytes = min64(wanted, available_host_memory().available_bytes / 4);
  return max64(1, bytes / (threads * kPieceFloats * std::int64_t{sizeof(float)}));
}

double measure_bandwidth(std::int64_t threads) {
  const std::int64_t pieces = pieces_per_thread(threads);
  const PageMemory memory(threads * pieces * kPieceFloats * std::int64_t{sizeof(float)},
                          "measuring the read bandwidth");
  std::fill_n(memory.floats(), threads * pieces * kPieceFloats, 1.0f);
  std::atomic<float> sink{0};
  return rate_of(threads, [&](std::int64_t thread, std::int64_t n) {
    const float* from = memory.floats() + (thread * pieces + n % pieces) * kPieceFloats;
    sink.store(read_once(from, kPieceFloats), std::memory_order_relaxed);
    return kPieceFloats * std::int64_t{sizeof(float)};
  });
}

double measure_arithmetic(std::int64_t threads) {
  std::atomic<float> sink{0};
  return rate_of(threads, [&](std::int64_t, std::int64_t) {
    sink.store(multiply_add(kPieceRounds), std::memory_order_relaxed);
    return kPieceRounds * operations_per_round();
  });
}

}  // namespace

MachineRates find_rates(std::int64_t threads, const GivenRates& given) {
  return {given.bytes_per_ns ? *given.bytes_per_ns : measure_bandwidth(threads),
          given.flops_per_ns ? *given.flops_per_ns : measure_arithmetic(threads), threads};
}

Bound bound_of(double weight_bytes, double flops, const MachineRates& rates) {
  return {weight_bytes / rates.bytes_per_ns, flops / rates.flops_per_ns};
}

std::string describe(const MachineRates& rates) {
  return fmt::format("read bandwidth {:.1f} GB/s, f32 {:.0f} GFLOP/s ({} threads)",
                     rates.bytes_per_ns, rates.flops_per_ns, rates.threads);
}

std::string device_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string name = "processor of unknown name";
  while (std::getline(file, line)) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{} ({} cores)", name, usable_cores());
}

}  // namespace megamoe::cli
