// What `doctor` finds of CUDA.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/findings.hpp"
#include "cli/text.hpp"

namespace megamoe::cli {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string partition_text(const std::optional<device::PartitionFacts>& partitions) {
  if (!partitions) return "green contexts: the driver does not say";
  return fmt::format("green contexts from {} in steps of {}", partitions->least_multiprocessors,
                     partitions->step_multiprocessors);
}

}  // namespace

Finding look_at_driver(const device::DriverFacts& driver,
                       const std::vector<device::DeviceFacts>& devices) {
  Finding finding{"CUDA", "", Verdict::limited, ""};
  if (!driver.built) {
    finding.found = "not in this build";
    finding.advice = "build where nvcc is in PATH for the Hopper kernels";
    return finding;
  }
  if (driver.driver == 0) {
    finding.found = fmt::format("in this build ({}); no driver", version_text(driver.runtime));
    finding.advice = "layers run on the CPU; with a GPU, install its driver: see nvidia-smi";
    return finding;
  }
  const auto usable = std::count_if(devices.begin(), devices.end(),
                                    [](const device::DeviceFacts& facts) { return facts.usable; });
  finding.found = fmt::format("built for {}, driver for {}; {} of {} devices run the kernels",
                              version_text(driver.runtime), version_text(driver.driver), usable,
                              devices.size());
  // A runtime of one major version runs with every driver of that version.
  if (driver.driver / 1000 < driver.runtime / 1000) {
    finding.advice = "the driver is older than this build: use a newer driver";
  } else if (usable == 0) {
    finding.advice = "compute capability 9.0 (Hopper) is wanted";
  } else {
    finding.verdict = Verdict::fine;
  }
  return finding;
}

Finding look_at_device(const device::DeviceFacts& facts) {
  Finding finding{fmt::format("CUDA device {}", facts.device), "", Verdict::fine, ""};
  finding.found = fmt::format(
      "{}, compute capability {}.{}, {} multiprocessors, {} of memory, {} of L2; addresses devices "
      "{}; memory for other processes by {}; {}",
      facts.name, facts.major, facts.minor, facts.multiprocessors, human_bytes(facts.memory_bytes),
      human_bytes(facts.cache_bytes),
      facts.peers.empty() ? std::string("none") : fmt::format("{}", fmt::join(facts.peers, ", ")),
      facts.exports_memory ? "descriptors" : "CUDA IPC", partition_text(facts.partitions));
  if (!facts.usable) {
    finding.verdict = Verdict::limited;
    finding.advice = "the kernels of this build run on compute capability 9.0 alone";
  }
  return finding;
}

std::vector<Finding> look_at_cuda() {
  const auto devices = device::device_facts();
  std::vector<Finding> findings{look_at_driver(device::driver_facts(), devices)};
  for (const device::DeviceFacts& facts : devices) findings.push_back(look_at_device(facts));
  return findings;
}

}  // namespace megamoe::cli
