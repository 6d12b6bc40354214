#include "megamoe/mqa_logits.hpp"

#include "api/layer_plan.hpp"
#include "base/check.hpp"
#include "cpu/kernels.hpp"
#include "mqa_logits/arguments.hpp"
#include "mqa_logits/cpu.hpp"

namespace megamoe {
namespace {

std::int64_t workers_of(const MqaLogitsOptions& options) {
  const std::int64_t workers = options.workers.value_or(usable_cores());
  check_argument(workers >= 1 && workers <= 4096, "workers is {}: 1 to 4096 is wanted", workers);
  return workers;
}

}  // namespace

struct MqaLogits::State {
  explicit State(const MqaLogitsOptions& options)
      : kernels(mqa::cpu_kernels(options.instruction_set.value_or(best_instruction_set()))),
        pool(workers_of(options)) {}
  const mqa::CpuKernels& kernels;
  WorkerPool pool;
};

MqaLogits::MqaLogits(const MqaLogitsOptions& options) : state_(std::make_unique<State>(options)) {}
MqaLogits::~MqaLogits() = default;
MqaLogits::MqaLogits(MqaLogits&&) noexcept = default;
MqaLogits& MqaLogits::operator=(MqaLogits&&) noexcept = default;

void MqaLogits::run(const MqaLogitsInput& input, const MqaLogitsOutput& output) {
  mqa::validate(input, output);
  mqa::run_on_cpu(input, output, state_->kernels, state_->pool);
}

void MqaLogits::run(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output) {
  mqa::validate(input, output);
  mqa::run_on_cpu(input, output, state_->kernels, state_->pool);
}

void MqaLogits::run(const MqaLogitsInput& input, const MqaChunkBuffer& buffer,
                    const MqaChunkConsumer& consumer) {
  mqa::validate(input, buffer.output);
  mqa::for_each_chunk(input, buffer, [&](const MqaLogitsInput& part, const MqaChunk& chunk) {
    mqa::run_on_cpu(part, buffer.output, state_->kernels, state_->pool);
    consumer(chunk);
  });
}

}  // namespace megamoe
