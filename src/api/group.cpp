#include "megamoe/group.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "api/group_state.hpp"
#include "base/check.hpp"

namespace megamoe {

std::shared_ptr<WorkerPool> GroupState::pool(std::int64_t threads) {
  if (!pool_ || pool_->threads() < threads) pool_ = std::make_shared<WorkerPool>(threads);
  return pool_;
}

std::shared_ptr<Arena> GroupState::arena(const LayerShape& shape) {
  std::erase_if(arenas_, [](const KnownArena& known) { return known.arena.expired(); });
  std::shared_ptr<Arena> mine;
  std::uint64_t number = 0;
  for (const KnownArena& known : arenas_) {
    auto arena = known.arena.lock();
    if (!arena || arena->shape() != shape) continue;
    mine = std::move(arena);
    number = known.number;
  }
  // Layers end at each rank's own time, so an arena that lives here may be gone elsewhere.
  const auto bytes = std::as_bytes(std::span(&number, 1));
  bool shared = number != 0;
  for (const auto& other : communicator_->all_gather(bytes, "sharing an arena")) {
    shared = shared && std::equal(bytes.begin(), bytes.end(), other.begin(), other.end());
  }
  if (shared) return mine;
  mine = std::make_shared<Arena>(communicator_, shape, first_);
  if (!first_) first_ = mine;
  arenas_.push_back({++arenas_made_, mine});
  return mine;
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
  return Group(std::make_shared<GroupState>(join_process_group(options)));
}

int Group::rank() const {
  return state_->communicator().rank();
}
int Group::ranks() const {
  return state_->communicator().ranks();
}

}  // namespace megamoe
