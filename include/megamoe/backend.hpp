// Which backends this build and this machine have, and which of them runs a layer.
#pragma once

#include <string>

#include "megamoe/types.hpp"

namespace megamoe {

/// CUDA devices that the kernels of this build run on (compute capability 9.0), by their number in
/// this process; 0 in a build without CUDA, or where there is no driver.
int cuda_devices();

struct BackendChoice {
  Backend backend = Backend::cpu;  ///< cpu or cuda
  std::string reason;              ///< a sentence
};

/// What `wanted` comes to for a layer of `ranks` ranks on this machine. Backend::cuda throws
/// Error{unsupported} that says what is missing: the build, a device, or the recipe, size or number
/// of ranks; Backend::automatic then takes the CPU and says the same as its reason.
BackendChoice choose_backend(const LayerConfig& config, int ranks, Backend wanted);

}  // namespace megamoe
