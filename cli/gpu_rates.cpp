#include "cli/gpu_rates.hpp"

#include <fmt/format.h>

#include "api/cuda_plan.hpp"
#include "device/gpu.hpp"

namespace megamoe::cli {
namespace {

// Read off an H200 of 132 multiprocessors: a kernel that reads 8 GiB, and the best dense FP8 matrix
// product of the vendor's library.
constexpr double kBytesPerNs = 4530;
constexpr double kFlopsPerNs = 1300e3;

}  // namespace

MachineRates gpu_rates(std::int64_t devices, std::int64_t multiprocessors,
                       const GivenRates& given) {
  const auto count = static_cast<double>(devices);
  const double part = static_cast<double>(multiprocessors) / kHopperMultiprocessors;
  return {.bytes_per_ns = given.bytes_per_ns.value_or(kBytesPerNs * count),
          .flops_per_ns = given.flops_per_ns.value_or(kFlopsPerNs * part * count),
          .threads = devices};
}

std::string describe_gpu(const MachineRates& rates) {
  return fmt::format("read bandwidth {:.0f} GB/s, FP8 {:.0f} GFLOP/s ({} CUDA device{})",
                     rates.bytes_per_ns, rates.flops_per_ns, rates.threads,
                     rates.threads == 1 ? "" : "s");
}

std::string gpu_name(std::int64_t devices) {
  for (const device::DeviceFacts& facts : device::device_facts()) {
    if (!facts.usable) continue;
    return devices == 1 ? facts.name : fmt::format("{} x {}", facts.name, devices);
  }
  return "no CUDA device";
}

}  // namespace megamoe::cli
