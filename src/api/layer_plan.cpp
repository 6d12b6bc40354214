#include "api/layer_plan.hpp"

#include <sched.h>

#include "base/check.hpp"
#include "cpu/kernels.hpp"

namespace megamoe {

std::int64_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

Plan plan_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options) {
  check_argument(ranks >= 1, "{} ranks: at least one is wanted", ranks);
  const CpuMachine machine{max64(1, usable_cores() / ranks),
                           options.instruction_set.value_or(best_instruction_set())};
  vector_kernels(machine.instruction_set);  // refuses a set that the machine lacks
  return make_plan(config, ranks, machine,
                   {.workers = options.workers,
                    .k1_workers = options.k1_workers,
                    .k2_workers = options.k2_workers,
                    .block_rows = options.block_rows});
}

}  // namespace megamoe
