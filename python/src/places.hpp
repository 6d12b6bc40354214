// Where the arrays of a group's calls are: the host's memory, or that of the rank's CUDA device.
#pragma once

#include "megamoe/group.hpp"

#include "api/group_state.hpp"
#include "python/src/arrays.hpp"

namespace megamoe::python {

inline Place place_of(const Group& group) {
  const GpuRank* gpu = group.state().gpu();
  return gpu == nullptr ? kHost : Place{nb::device::cuda::value, gpu->member().device()};
}

}  // namespace megamoe::python
