#include "api/layer_plan.hpp"

#include <cstring>
#include <map>
#include <span>

#include <sched.h>

#include "base/check.hpp"
#include "cpu/kernels.hpp"

namespace megamoe {

namespace {

/// Empty where the system does not say.
CoreSet cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CoreSet cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::int64_t usable_cores() {
  return max64(1, static_cast<std::int64_t>(cores_of_this_thread().size()));
}

std::int64_t part_of_cores(std::span<const CoreSet> sets, std::size_t rank) {
  std::map<int, std::int64_t> users;
  for (const CoreSet& set : sets) {
    for (int core : set) ++users[core];
  }
  double cores = 0;
  for (int core : sets[rank]) cores += 1.0 / static_cast<double>(users[core]);
  constexpr double kRounding = 1e-9;  // of thirds that should have added up to a whole
  return max64(1, static_cast<std::int64_t>(cores + kRounding));
}

std::int64_t share_cores(Communicator& communicator) {
  const CoreSet own = cores_of_this_thread();
  std::vector<CoreSet> sets;
  for (const auto& payload :
       communicator.all_gather(std::as_bytes(std::span(own)), "share the cores of the host")) {
    CoreSet& set = sets.emplace_back(payload.size() / sizeof(int));
    if (!set.empty()) std::memcpy(set.data(), payload.data(), set.size() * sizeof(int));
  }
  return part_of_cores(sets, static_cast<std::size_t>(communicator.rank()));
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
