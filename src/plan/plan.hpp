// From shape, recipe and machine to everything that is decided before a call: one pure function,
// one immutable value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megamoe/types.hpp"

#include "layout/arena.hpp"
#include "schedule/walk.hpp"

namespace megamoe {

/// What the plan must know of a CPU rank's machine.
struct CpuMachine {
  std::int64_t cores = 1;  ///< cores that this rank may use
  InstructionSet instruction_set = InstructionSet::scalar;
};

/// What a user may decide instead of the heuristics. Absent: the heuristic decides.
struct PlanOverrides {
  std::optional<std::int64_t> workers;     ///< threads of a fused or staged call, 1 to 1024
  std::optional<std::int64_t> k1_workers;  ///< threads of the split's dispatch and GEMM 1
  std::optional<std::int64_t> k2_workers;  ///< threads of the split's GEMM 2
  std::optional<std::int64_t> block_rows;  ///< BLOCK_M, one of kBlockRows
};

struct Plan {
  LayerConfig config;
  LayerShape shape;
  ArenaLayout arena;
  CpuMachine machine;
  std::int64_t block_rows = 0;     ///< BLOCK_M
  std::int64_t pull_rows = 0;      ///< rows that one pull task copies
  std::int64_t gemm2_columns = 0;  ///< outputs of one GEMM-2 task
  std::int64_t workers = 0;
  std::int64_t k1_workers = 0;
  std::int64_t k2_workers = 0;
  WalkShape walk;

  /// Threads that a rank needs to run any execution.
  std::int64_t threads() const;
  /// The plan in words and numbers, some twenty lines.
  std::string explain() const;
};

/// Throws Error{invalid_argument} for a config that no machine could run.
void validate(const LayerConfig& config);

/// BLOCK_M for an expected number of rows per expert: the smallest candidate at least that large,
/// else the largest.
std::int64_t choose_block_rows(std::int64_t expected_rows);

/// Pure. Throws what validate throws, and Error{invalid_argument} for overrides that cannot be.
Plan make_plan(const LayerConfig& config, std::int64_t ranks, const CpuMachine& machine,
               const PlanOverrides& overrides);

}  // namespace megamoe
