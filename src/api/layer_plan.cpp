#include "api/layer_plan.hpp"

#include <cstring>
#include <span>

#include "base/check.hpp"
#include "cpu/kernels.hpp"
#include "topology/binding.hpp"

namespace megamoe {

std::int64_t usable_cores() {
  return max64(1, static_cast<std::int64_t>(cpus_of_this_thread().size()));
}

RankPlace share_cores(Communicator& communicator) {
  const CpuSet own = cpus_of_this_thread();
  std::vector<CpuSet> masks;
  for (const auto& payload :
       communicator.all_gather(std::as_bytes(std::span(own)), "share the cores of the host")) {
    CpuSet& mask = masks.emplace_back(payload.size() / sizeof(int));
    if (!mask.empty()) std::memcpy(mask.data(), payload.data(), mask.size() * sizeof(int));
  }
  return place_ranks(host_topology(), masks)[static_cast<std::size_t>(communicator.rank())];
}

std::vector<RankPlace> places_of_forked(std::int64_t ranks) {
  const std::vector<CpuSet> masks(static_cast<std::size_t>(ranks), cpus_of_this_thread());
  return place_ranks(host_topology(), masks);
}

Plan plan_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options,
                std::optional<std::int64_t> cores) {
  check_argument(ranks >= 1, "{} ranks: at least one is wanted", ranks);
  const CpuMachine machine{cores.value_or(max64(1, usable_cores() / ranks)),
                           options.instruction_set.value_or(best_instruction_set())};
  vector_kernels(machine.instruction_set);  // refuses a set that the machine lacks
  return make_plan(config, ranks, machine,
                   {.workers = options.workers,
                    .k1_workers = options.k1_workers,
                    .k2_workers = options.k2_workers,
                    .block_rows = options.block_rows});
}

}  // namespace megamoe
