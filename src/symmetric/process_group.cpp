// A group whose ranks are processes of one host. All talk passes through rank 0; the memory is one
// memfd per rank, mapped by all.

#include <utility>

#include "base/check.hpp"
#include "symmetric/communicator.hpp"
#include "symmetric/mapping.hpp"
#include "symmetric/meeting.hpp"
#include "symmetric/rendezvous.hpp"
#include "symmetric/shared_file.hpp"

namespace megamoe {
namespace {

class ProcessMemory final : public SymmetricMemory {
 public:
  explicit ProcessMemory(std::vector<Mapping> parts) : parts_(std::move(parts)) {}
  std::int64_t bytes() const override { return parts_[0].bytes(); }
  std::byte* base(int rank) const override { return parts_[static_cast<std::size_t>(rank)].data(); }

 private:
  std::vector<Mapping> parts_;
};

class ProcessCommunicator final : public Communicator {
 public:
  ProcessCommunicator(const ProcessGroupOptions& options, MemorySource memory)
      : meetings_(options), memory_(std::move(memory)) {
    meetings_.meet({}, {}, "form the group");
  }

  int rank() const override { return meetings_.rank(); }
  int ranks() const override { return meetings_.ranks(); }
  std::chrono::nanoseconds deadline() const override { return meetings_.deadline(); }
  std::optional<std::string> lost(int rank) const override { return meetings_.lost(rank); }
  HostMemory host_memory() const override { return memory_(); }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> payload,
                                                 std::string_view what) override {
    return meetings_.meet(payload, {}, what).payloads;
  }

  std::vector<FileDescriptor> exchange_files(int file, std::string_view what) override {
    return meetings_.meet({}, file, what).files;
  }

  std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) override {
    std::vector<MemoryRequest> requests;
    for (const auto& payload : all_gather(encode({bytes, memory_()}), "ask for symmetric memory")) {
      requests.push_back(decode_request(payload));
    }
    check_requests(requests);

    FileDescriptor mine;
    const auto made = try_step([&] { mine = make_shared_file("megamoe-arena", bytes); });
    const auto files = meetings_.meet(made, mine.get(), "make symmetric memory");
    throw_first(files.payloads);

    std::vector<Mapping> parts;
    const auto mapped = try_step([&] {
      for (const FileDescriptor& file : files.files) {
        parts.push_back(Mapping::shared(file.get(), bytes));
      }
    });
    throw_first(all_gather(mapped, "map symmetric memory"));
    return std::make_unique<ProcessMemory>(std::move(parts));
  }

 private:
  /// Nothing, or the failure of this rank's part of a collective step, for the others to know.
  template <class Step>
  static std::vector<std::byte> try_step(Step&& step) {
    try {
      step();
      return {};
    } catch (const Error& error) {
      return make_failure(error).data;
    }
  }

  void throw_first(const std::vector<std::vector<std::byte>>& outcomes) const {
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (outcomes[rank].empty()) continue;
      const Error error = read_failure({MessageKind::failure, outcomes[rank], {}});
      fail(error.code(), "rank {}: {}", rank, error.what());
    }
  }

  Meetings meetings_;
  MemorySource memory_;
};

}  // namespace

std::shared_ptr<Communicator> join_process_group(const ProcessGroupOptions& options,
                                                 MemorySource memory) {
  return std::make_shared<ProcessCommunicator>(options, std::move(memory));
}

}  // namespace megamoe
