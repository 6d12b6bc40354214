// What a Hopper GPU can do at most.
#pragma once

#include <string>

#include "cli/machine_rates.hpp"

namespace megamoe::cli {

/// Rates of `devices` devices together. Read bandwidth and dense FP8 arithmetic are those read off
/// an H200, the latter in proportion to the multiprocessors, where they are not given.
MachineRates gpu_rates(std::int64_t devices, std::int64_t multiprocessors, const GivenRates& given);

/// "read bandwidth 4530 GB/s, FP8 1300000 GFLOP/s (1 CUDA device)".
std::string describe_gpu(const MachineRates& rates);

/// "NVIDIA H200 x 2": the devices that ranks run on, by name.
std::string gpu_name(std::int64_t devices);

}  // namespace megamoe::cli
