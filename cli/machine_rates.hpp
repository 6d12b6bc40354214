// What this machine can do at most, measured for a fraction of a second, and the bound that it puts
// on a call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megamoe::cli {

struct MachineRates {
  double bytes_per_ns = 0;  ///< read bandwidth of memory: GB/s
  double flops_per_ns = 0;  ///< f32 multiply-adds in registers: GFLOP/s
  std::int64_t threads = 0;
};

/// What the user says instead of a measurement.
struct GivenRates {
  std::optional<double> bytes_per_ns;
  std::optional<double> flops_per_ns;
};

/// On `threads` threads at once, some 0.2 s for each that is not given: the best of four windows.
/// Not before a fork.
MachineRates find_rates(std::int64_t threads, const GivenRates& given);

/// The time below which no call can be, and why.
struct Bound {
  double memory_ns = 0;
  double arithmetic_ns = 0;
  double ns() const { return memory_ns > arithmetic_ns ? memory_ns : arithmetic_ns; }
  std::string_view name() const { return memory_ns > arithmetic_ns ? "memory" : "arithmetic"; }
};
Bound bound_of(double weight_bytes, double flops, const MachineRates& rates);

/// "read bandwidth 24.1 GB/s, f32 310 GFLOP/s (2 threads)".
std::string describe(const MachineRates& rates);

/// "INTEL(R) XEON(R) ... (2 cores)": the processor as the system names it.
std::string device_name();

}  // namespace megamoe::cli
