// In place of the half of src/symmetric/ that calls CUDA.
#include "no_cuda/absent.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe {

std::shared_ptr<GpuMember> make_gpu_process_member(std::shared_ptr<Communicator>, int, GpuSharing) {
  fail_without_cuda();
}

}  // namespace megamoe
