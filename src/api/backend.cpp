#include "megamoe/backend.hpp"

#include <fmt/format.h>

#include "megamoe/error.hpp"

#include "api/cuda_plan.hpp"
#include "base/check.hpp"
#include "device/gpu.hpp"

namespace megamoe {
namespace {

/// The first device that the kernels run on. Throws Error{unsupported} for none.
device::DeviceFacts first_usable() {
  if (!device::driver_facts().built) device::check_usable(0);  // says so
  const auto devices = device::device_facts();
  for (const device::DeviceFacts& facts : devices) {
    if (facts.usable) return facts;
  }
  device::check_usable(0);  // no device, or not of the right kind
  fail(ErrorCode::internal, "CUDA devices changed while they were looked at");
}

}  // namespace

int cuda_devices() {
  return device::usable_devices();
}

BackendChoice choose_backend(const LayerConfig& config, int ranks, Backend wanted) {
  if (wanted == Backend::cpu) return {Backend::cpu, "it was asked for"};
  try {
    const device::DeviceFacts facts = first_usable();
    plan_cuda_layer(config, ranks, {}, facts.multiprocessors);
    return {Backend::cuda, fmt::format("{} runs this layer", facts.name)};
  } catch (const Error& error) {
    if (wanted == Backend::cuda) fail(error.code(), "backend cuda: {}", error.what());
    return {Backend::cpu, error.what()};
  }
}

}  // namespace megamoe
