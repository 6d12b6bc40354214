// The two matrix products, each with its epilogue, one task at a time.
#pragma once

#include "cpu/call.hpp"
#include "schedule/walk.hpp"

namespace megamoe {

/// Waits until the block's rows have arrived; W1's gate and up rows of one group of intermediates
/// times the block; activation, weight, quantisation; stores the group into the GEMM-2 input and
/// sets its readiness bit (release).
void gemm1(const CpuCall& call, const TeamMember& me, const Task& task);

/// Waits until all groups of the block are ready; one range of W2's rows times the block; pushes
/// each row's range to the combine region of the row's source rank.
void gemm2(const CpuCall& call, const TeamMember& me, const Task& task);

/// Bytes of the buffers that both need, of one worker.
std::int64_t gemm_scratch_bytes(const Plan& plan, const VectorKernels& kernels);

/// Sizes them.
void size_gemm_scratch(const Plan& plan, const VectorKernels& kernels, WorkerScratch& scratch);

}  // namespace megamoe
