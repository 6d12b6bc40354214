// The MQA logits on the CPU.
#pragma once

#include "megamoe/mqa_logits.hpp"

#include "cpu/worker_pool.hpp"
#include "mqa_logits/kernels.hpp"

namespace megamoe::mqa {

/// Validated arguments. Throws Error{invalid_argument} for an entry of the block table, in the
/// range of a row, that is no block.
void run_on_cpu(const MqaLogitsInput& input, const MqaLogitsOutput& output,
                const CpuKernels& kernels, WorkerPool& pool);
void run_on_cpu(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output,
                const CpuKernels& kernels, WorkerPool& pool);

}  // namespace megamoe::mqa
