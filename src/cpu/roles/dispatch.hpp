// Dispatch: count, publish, scatter to the owners, barrier A, and the pulls.
#pragma once

#include <cstdint>

#include "cpu/call.hpp"
#include "schedule/walk.hpp"

namespace megamoe {

/// Converts x where the caller brought bf16, counts this rank's routes, writes each into its
/// owner's source list, publishes the counts and passes barrier A. Called by every member of a
/// team; afterwards each member knows what arrives here.
void dispatch_metadata(const CpuCall& call, const TeamMember& me);

/// Waits until every rank has come to barrier A and has reported its count for each of this rank's
/// experts, without a deadline of its own: the worker that passes barrier A has one, and names the
/// rank that is late. For teams that do not pass barrier A themselves.
void wait_for_receive_totals(const CpuCall& call);

/// Rows of a pool expert in this call. After barrier A, or after wait_for_receive_totals.
std::int64_t rows_of_expert(const CpuCall& call, std::int64_t pool_expert);

/// Fills scratch.first_block. After barrier A, or after wait_for_receive_totals.
void find_blocks(const CpuCall& call, WorkerScratch& scratch);

/// A task's rows: the valid ones of its block.
struct BlockRows {
  std::int64_t first_row;        ///< in the pool
  std::int64_t rows;             ///< 1 to block_rows
  std::int64_t first_of_expert;  ///< index of first_row among the expert's rows
};
BlockRows rows_of_block(const CpuCall& call, const WorkerScratch& scratch, const Task& task);

/// Copies a part of a block's rows from their source ranks into the pool, with source and weight,
/// then adds them to the block's arrival count (release).
void pull(const CpuCall& call, const TeamMember& me, const Task& task);

}  // namespace megamoe
