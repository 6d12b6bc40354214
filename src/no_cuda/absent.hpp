// What every function of a build without CUDA says.
#pragma once

#include "base/check.hpp"

namespace megamoe {

[[noreturn]] inline void fail_without_cuda() {
  fail(ErrorCode::unsupported,
       "this build of megamoe has no CUDA backend: use the cpu backend, or build it where nvcc is "
       "in PATH (or with -DMEGAMOE_CUDA=ON)");
}

}  // namespace megamoe
