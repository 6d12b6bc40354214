#include "sm90/launch.hpp"

#include "device/cuda.hpp"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

const void* kernel_of(const KernelShape& shape, KernelPart part) {
  switch (shape.tokens) {
    case 16:
      return kernel_16(part);
    case 32:
      return kernel_32(part);
    case 48:
      return kernel_48(part);
    case 64:
      return kernel_64(part);
    case 80:
      return kernel_80(part);
    case 96:
      return kernel_96(part);
    case 112:
      return kernel_112(part);
    case 128:
      return kernel_128(part);
    case 144:
      return kernel_144(part);
    case 160:
      return kernel_160(part);
    default:
      return kernel_176(part);
  }
}

namespace {

void load(const void* kernel, std::int64_t shared_bytes) {
  device::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)),
                "preparing a kernel");
}

// Cooperative: the launch fails, rather than waits for ever, if the blocks cannot be resident
// together.
void launch(const void* kernel, std::int64_t blocks, int threads, std::int64_t shared_bytes,
            KernelParams& params, device::StreamHandle stream, const char* what) {
  void* arguments[] = {&params};
  device::check(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                            dim3(static_cast<unsigned>(threads)), arguments,
                                            static_cast<std::size_t>(shared_bytes), stream),
                what);
}

}  // namespace

Launcher::Launcher() {
  for (const KernelShape& shape : kKernelShapes) {
    for (const KernelPart part : {KernelPart::fused, KernelPart::k1, KernelPart::k2}) {
      if (has_kernel(shape, part)) load(kernel_of(shape, part), kMaxSharedBytes);
    }
  }
  load(combine_kernel_address(), kSharedFrontBytes);
}

void Launcher::launch_part(const GpuPlan& plan, KernelPart part, KernelParams& params,
                           device::StreamHandle stream) const {
  const bool second = part == KernelPart::k2;
  params.shared = second ? plan.shared2 : plan.shared;
  const std::int64_t blocks = part == KernelPart::fused ? plan.blocks
                              : second                  ? plan.k2_blocks
                                                        : plan.k1_blocks;
  launch(kernel_of(plan.kernel, part), blocks, plan.kernel.threads(), params.shared.bytes, params,
         stream,
         part == KernelPart::fused ? "launching the fused kernel"
         : second                  ? "launching K2"
                                   : "launching K1");
}

void Launcher::launch_combine(const GpuPlan& plan, KernelParams& params,
                              device::StreamHandle stream) const {
  launch(combine_kernel_address(), plan.blocks, kCombineThreads, kSharedFrontBytes, params, stream,
         "launching K3");
}

void Launcher::enqueue(const GpuPlan& plan, KernelParams& params,
                       device::StreamHandle stream) const {
  if (plan.execution == Execution::fused) {
    launch_part(plan, KernelPart::fused, params, stream);
    return;
  }
  if (plan.execution == Execution::staged) {
    launch_part(plan, KernelPart::k1, params, stream);
    launch_part(plan, KernelPart::k2, params, stream);
  } else {
    before_.record(stream);
    before_.hold(beside_.get());
    const auto k1 = [&] { launch_part(plan, KernelPart::k1, params, stream); };
    if (!plan.overrides.k2_first && !plan.overrides.k1_lost) k1();
    launch_part(plan, KernelPart::k2, params, beside_.get());
    if (plan.overrides.k2_first) k1();
    after_.record(beside_.get());
    after_.hold(stream);
  }
  launch_combine(plan, params, stream);
}

}  // namespace megamoe::sm90
