// The launches of a call: one kernel, or the split's three.
#pragma once

#include "device/gpu.hpp"
#include "plan/sm90_plan.hpp"
#include "sm90/params.hpp"

namespace megamoe::sm90 {

/// Of the device that is current when it is made, and in every call.
class Launcher {
 public:
  /// Loads every kernel for the weights: lazy loading waits for the device, and so for a kernel
  /// that waits for one that is not loaded yet.
  explicit Launcher(bool fp8_weights);

  /// Enqueues a call. The split's K2 goes to a stream of its own that follows `stream` and that
  /// `stream` follows: it runs beside K1, or after it where the device has no room for both. A
  /// capture of `stream` has all kernels.
  void enqueue(const GpuPlan& plan, KernelParams& params, device::StreamHandle stream) const;

 private:
  void launch_part(const GpuPlan& plan, KernelPart part, KernelParams& params,
                   device::StreamHandle stream) const;
  void launch_combine(const GpuPlan& plan, KernelParams& params, device::StreamHandle stream) const;

  device::Stream beside_;
  mutable device::Event before_;
  mutable device::Event after_;
};

}  // namespace megamoe::sm90
