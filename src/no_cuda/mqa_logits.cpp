#include "megamoe/mqa_logits.hpp"

#include "no_cuda/absent.hpp"

namespace megamoe {

void mqa_logits_on_gpu(const MqaLogitsInput&, const MqaLogitsOutput&, void*) {
  fail_without_cuda();
}
void mqa_logits_on_gpu(const PagedMqaLogitsInput&, const MqaLogitsOutput&, void*) {
  fail_without_cuda();
}
void mqa_logits_on_gpu(const MqaLogitsInput&, const MqaChunkBuffer&, const MqaChunkConsumer&,
                       void*) {
  fail_without_cuda();
}

}  // namespace megamoe
