#include "cli/cuda_plan_report.hpp"

#include <cmath>

#include <fmt/format.h>

#include "api/cuda_plan.hpp"
#include "cli/gpu_rates.hpp"
#include "cli/prediction.hpp"
#include "cli/report.hpp"
#include "cli/text.hpp"
#include "device/gpu.hpp"

namespace megamoe::cli {
namespace {

/// What the plan is for: the first device that the kernels run on, else one that is taken for it.
struct Target {
  std::string name;
  std::int64_t multiprocessors = kHopperMultiprocessors;
  std::int64_t devices = 0;  ///< that are here
};

Target find_target() {
  Target target{"an H100 or H200 of 132 multiprocessors for each rank (no such device is here)"};
  for (const device::DeviceFacts& facts : device::device_facts()) {
    if (!facts.usable) continue;
    if (target.devices++ > 0) continue;
    target.name = fmt::format("{} ({} multiprocessors)", facts.name, facts.multiprocessors);
    target.multiprocessors = facts.multiprocessors;
  }
  return target;
}

}  // namespace

nlohmann::json report_cuda_plan(const LayerSource& source, const LayerOptions& options,
                                const GivenRates& given) {
  const Target target = find_target();
  const std::int64_t devices =
      target.devices > 0 ? min64(target.devices, source.ranks()) : source.ranks();
  const std::int64_t sharers = ceil_div(source.ranks(), devices);
  const CudaPlan plan =
      plan_cuda_layer(source.config(), source.ranks(), options, target.multiprocessors / sharers);
  const std::int64_t weights = plan.shape.experts_per_rank() * plan.expert_bytes;
  fmt::print("{}, backend cuda, for {}{}\n{}\n{}\n", source.description(), target.name,
             sharers > 1 ? fmt::format(", shared by {} ranks", sharers) : "", note_line(source),
             plan.explain());
  fmt::print("each rank needs {} of GPU memory: arena {}, packed weights {}\n\n",
             human_bytes(plan.arena.bytes + weights), human_bytes(plan.arena.bytes),
             human_bytes(weights));

  const MachineRates rates = gpu_rates(devices, target.multiprocessors, given);
  const Prediction prediction = predict(source, plan.shape, plan.expert_bytes, plan.expert_bytes);
  const Bound bound = bound_of(prediction.weight_bytes, prediction.flops, rates);
  fmt::print(
      "machine: {}\na call touches {:.1f} experts over all ranks, if routes spread evenly: "
      "{} of packed weights, {:.3g} GFLOP\nno call is faster than {}: {} is the bound\n",
      describe_gpu(rates), prediction.experts_hit,
      human_bytes(std::llround(prediction.weight_bytes)), prediction.flops / 1e9,
      duration(std::llround(bound.ns())), bound.name());

  nlohmann::json regions = nlohmann::json::object();
  for (const sm90::GpuRegionSpan& region : plan.arena.regions)
    regions[region.name] = region.bytes();
  return {{"layer", source.description()},
          {"backend", "cuda"},
          {"ranks", source.ranks()},
          {"device", target.name},
          {"explanation", plan.explain()},
          {"token_tile", plan.of_call(source.config().max_tokens).kernel.tokens},
          {"arena_bytes", plan.arena.bytes},
          {"arena_regions", regions},
          {"weight_bytes", weights},
          {"expert_bytes", plan.expert_bytes},
          {"prediction",
           {{"experts_hit", prediction.experts_hit},
            {"weight_bytes", prediction.weight_bytes},
            {"flops", prediction.flops},
            {"gbps", rates.bytes_per_ns},
            {"gflops", rates.flops_per_ns},
            {"us", bound.ns() / 1e3},
            {"bound", bound.name()}}}};
}

}  // namespace megamoe::cli
