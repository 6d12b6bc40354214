#include "megamoe/group.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "api/group_state.hpp"
#include "base/check.hpp"
#include "layout/sm90_arena.hpp"
#include "plan/plan.hpp"
#include "plan/sm90_plan.hpp"

namespace megamoe {

std::shared_ptr<WorkerPool> GroupState::pool(std::int64_t threads, const CpuSet& bound_to) {
  if (!pool_ || pool_->threads() < threads || pool_cpus_ != bound_to) {
    pool_ = std::make_shared<WorkerPool>(threads);
    pool_cpus_ = bound_to;
  }
  return pool_;
}

std::shared_ptr<Arena> GroupState::arena(const LayerShape& shape) {
  return arenas_.find_or_make(*communicator_, shape, [&] {
    auto arena = std::make_shared<Arena>(communicator_, shape, first_);
    if (!first_) first_ = arena;
    return arena;
  });
}

void agree_on_success(Communicator& communicator, const std::string& own_failure,
                      std::string_view what) {
  const auto outcomes = communicator.all_gather(
      std::as_bytes(std::span(own_failure.data(), own_failure.size())), what);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) continue;
    const std::string message(reinterpret_cast<const char*>(outcomes[rank].data()),
                              outcomes[rank].size());
    fail(ErrorCode::aborted, "rank {} gave up {}: {}", rank, what, message);
  }
}

Group::Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

Group Group::single(const GroupOptions& options) {
  return threads(1, options).front();
}

std::vector<Group> Group::threads(int ranks, const GroupOptions& options) {
  check_argument(ranks >= 1 && ranks <= 1024, "a group of {} ranks: 1 to 1024 are wanted", ranks);
  std::vector<Group> groups;
  for (auto& communicator : make_thread_group(ranks, options)) {
    groups.push_back(Group(std::make_shared<GroupState>(std::move(communicator))));
  }
  return groups;
}

Group Group::processes(const ProcessGroupOptions& options) {
  check_argument(options.ranks >= 1 && options.ranks <= 1024,
                 "a group of {} ranks: 1 to 1024 are wanted", options.ranks);
  check_argument(options.rank >= 0 && options.rank < options.ranks,
                 "rank {} of {}: 0 to {} is wanted", options.rank, options.ranks,
                 options.ranks - 1);
  std::shared_ptr<Communicator> communicator = join_process_group(options);
  const std::byte on_gpu{options.device ? std::uint8_t{1} : std::uint8_t{0}};
  const auto all = communicator->all_gather({&on_gpu, 1}, "choose a backend");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    fail(ErrorCode::mismatch,
         "rank 0 runs on a {} and rank {} on a {}: give all ranks a device, or none",
         all[0][0] == std::byte{1} ? "CUDA device" : "CPU", rank,
         all[rank][0] == std::byte{1} ? "CUDA device" : "CPU");
  }
  std::shared_ptr<GpuMember> member;
  if (options.device) member = make_gpu_process_member(communicator, *options.device);
  return Group(std::make_shared<GroupState>(std::move(communicator), std::move(member)));
}

Group Group::device(int device, const GroupOptions& options) {
  return devices({device}, options).front();
}

std::vector<Group> Group::devices(const std::vector<int>& devices, const GroupOptions& options) {
  check_argument(!devices.empty(), "no devices: one for each rank is wanted");
  const auto communicators = make_thread_group(static_cast<int>(devices.size()), options);
  const auto members = make_gpu_thread_members(communicators, devices);
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    groups.push_back(Group(std::make_shared<GroupState>(communicators[rank], members[rank])));
  }
  return groups;
}

Group Group::peers(const PeerGroupOptions& options) {
  GpuPeer peer = join_gpu_peers(options);
  return Group(std::make_shared<GroupState>(std::move(peer.communicator), std::move(peer.member)));
}

std::int64_t Group::peer_bytes(const LayerConfig& config, int ranks) {
  validate(config);
  sm90::validate_gpu(config, ranks);
  return kPeerMailboxBytes + sm90::make_gpu_arena_layout(make_shape(config, ranks)).bytes;
}

Backend Group::backend() const {
  return state_->gpu() != nullptr ? Backend::cuda : Backend::cpu;
}

int Group::rank() const {
  return state_->communicator().rank();
}
int Group::ranks() const {
  return state_->communicator().ranks();
}

}  // namespace megamoe
