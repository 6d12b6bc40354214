// Ranks in processes of their own on one CUDA device, where they take turns. The children alone use
// the device: a driver that is started does not survive a fork.
#include "symmetric/processes.hpp"

#include "gpu/gpu_layer.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe::test {
namespace {

using testing_symmetric::Child;
using testing_symmetric::Outcome;

constexpr const char* kNoDevice = "no GPU of compute capability 9.0";

ProcessGroupOptions process(int rank, const std::string& name) {
  ProcessGroupOptions options;
  options.rank = rank;
  options.ranks = 2;
  options.rendezvous = name + std::to_string(getppid());
  options.group = quick(std::chrono::seconds(10));
  return options;
}

/// Runs body(rank) in two processes; skips when they say that there is no device.
void on_two_processes(const std::function<std::string(int)>& body) {
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&body, rank]() -> std::string {
      if (device::usable_devices() == 0) return kNoDevice;
      return body(rank);
    });
  }
  std::string text;
  for (Child& child : children) {
    const Outcome outcome = child.reap();
    EXPECT_EQ(outcome.signal, 0);
    if (outcome.error) ADD_FAILURE() << outcome.error->what();
    text = outcome.text;
    EXPECT_TRUE(text.empty() || text == kNoDevice) << text;
  }
  if (text == kNoDevice) GTEST_SKIP() << kNoDevice;
}

TEST(GpuProcesses, RunALayerOverMappedMemory) {
  on_two_processes([](int rank) -> std::string {
    const LayerConfig config = gpu_config();
    const LayerWeights weights = gpu_weights(config);
    ProcessGroupOptions options = process(rank, "gpu-processes");
    options.device = 0;
    const Group group = Group::processes(options);
    Layer layer(config, weights, group);
    GpuIo io(config);
    for (int call = 0; call < 3; ++call) {
      const Input input = cli::synthetic_input(config, 5u + call, rank, 80 + 40 * rank);
      const Batch batch = io.load(layer, input);
      layer.forward(batch, io.y(batch.tokens));
      const auto verdict = against_reference(config, weights, input, io.read(batch.tokens));
      if (!verdict.empty()) return verdict + " in call " + std::to_string(call);
    }
    return "";
  });
}

TEST(GpuProcesses, ShareMemoryByDescriptorsAndByIpc) {
  for (const GpuSharing sharing : {GpuSharing::best, GpuSharing::ipc}) {
    on_two_processes([sharing](int rank) -> std::string {
      const std::string name = sharing == GpuSharing::best ? "gpu-memory" : "gpu-ipc";
      const auto communicator = join_process_group(process(rank, name));
      const auto member = make_gpu_process_member(communicator, 0, sharing);
      if (sharing == GpuSharing::ipc && member->way() != "CUDA IPC") return "not by IPC";
      const auto memory = member->allocate(3 << 20);
      const device::Stream stream;
      // Each rank writes its number into the other's part.
      const std::int64_t number = 100 + rank;
      std::int64_t before = -1;
      stream.copy(&before, memory->base(rank), sizeof before);
      stream.wait();
      if (before != 0) return "memory is not zero-filled";
      communicator->all_gather({}, "looking at zeros");
      stream.copy(memory->base(1 - rank) + 4096, &number, sizeof number);
      stream.wait();
      communicator->all_gather({}, "writing numbers");
      std::int64_t got = 0;
      stream.copy(&got, memory->base(rank) + 4096, sizeof got);
      stream.wait();
      communicator->all_gather({}, "reading numbers");
      return got == 100 + 1 - rank ? "" : "read " + std::to_string(got);
    });
  }
}

TEST(GpuProcesses, ARankWithoutADeviceAmongOthersIsAnErrorThatNamesIt) {
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([rank]() -> std::string {
      ProcessGroupOptions options = process(rank, "gpu-and-cpu");
      if (rank == 1) options.device = 0;
      Group::processes(options);
      return "";
    });
  }
  for (Child& child : children) {
    const Outcome outcome = child.reap();
    ASSERT_TRUE(outcome.error.has_value());
    EXPECT_EQ(outcome.error->code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(outcome.error->what()).find("rank 1"), std::string::npos)
        << outcome.error->what();
  }
}

}  // namespace
}  // namespace megamoe::test
