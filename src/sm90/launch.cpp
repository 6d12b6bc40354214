#include "sm90/launch.hpp"

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "sm90/kernels.hpp"

namespace megamoe::sm90 {

namespace {

struct Entry {
  int tokens;
  const void* (*kernel)(KernelPart);
};
constexpr Entry kFp4Kernels[] = {{16, kernel_16},   {32, kernel_32},   {48, kernel_48},
                                 {64, kernel_64},   {80, kernel_80},   {96, kernel_96},
                                 {112, kernel_112}, {128, kernel_128}, {144, kernel_144},
                                 {160, kernel_160}, {176, kernel_176}};
constexpr Entry kFp8Kernels[] = {{16, fp8_kernel_16},  {32, fp8_kernel_32},   {64, fp8_kernel_64},
                                 {96, fp8_kernel_96},  {128, fp8_kernel_128}, {144, fp8_kernel_144},
                                 {160, fp8_kernel_160}};

template <std::size_t kCount>
const void* find_kernel(const Entry (&entries)[kCount], int tokens, KernelPart part) {
  for (const Entry& entry : entries) {
    if (entry.tokens == tokens) return entry.kernel(part);
  }
  fail(ErrorCode::internal, "no kernel for a tile of {} tokens", tokens);
}

}  // namespace

const void* kernel_of(const KernelShape& shape, KernelPart part) {
  return shape.fp8 ? find_kernel(kFp8Kernels, shape.tokens, part)
                   : find_kernel(kFp4Kernels, shape.tokens, part);
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

Launcher::Launcher(bool fp8_weights) {
  for (KernelShape shape : kKernelShapes) {
    shape.fp8 = fp8_weights;
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
