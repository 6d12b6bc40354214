// Functions of CUDA's driver, found when they are needed: the library loads and runs with drivers
// that lack them.
#pragma once

#include <string_view>

#include <cuda.h>

namespace megamoe::device {

/// Null where the driver has no such function. `version`: the CUDA, 12000 for 12.0, whose form of
/// the function is wanted.
void* find_driver_function(const char* name, unsigned version);

/// The same, cast to the type of the function's declaration in cuda.h.
template <class Function>
Function* driver_function(const char* name, unsigned version) {
  return reinterpret_cast<Function*>(find_driver_function(name, version));
}

/// Throws Error{out_of_memory} or Error{internal} that names `what` unless `status` is success.
void check(CUresult status, std::string_view what);

}  // namespace megamoe::device
