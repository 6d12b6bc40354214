// A group whose ranks are threads: they meet at a hub.

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "symmetric/collective.hpp"
#include "symmetric/communicator.hpp"
#include "symmetric/deadline.hpp"
#include "symmetric/mapping.hpp"

namespace megamoe {
namespace {

/// What one rank brings to a meeting.
struct Contribution {
  std::string call;
  std::vector<std::byte> payload;
  std::optional<MemoryRequest> request;
  std::shared_ptr<Mapping> mapping;
  std::optional<Error> failure;
};
using Contributions = std::vector<Contribution>;

// News wakes those who wait; this only bounds one wait on the clock.
constexpr auto kWakeEvery = std::chrono::hours(1);

/// Where the ranks meet. Any thread.
class Hub {
 public:
  Hub(int ranks, std::chrono::nanoseconds deadline, MemorySource memory)
      : deadline_(deadline),
        memory_(std::move(memory)),
        left_(static_cast<std::size_t>(ranks)),
        meeting_(std::make_shared<Meeting>(ranks)) {}

  std::chrono::nanoseconds deadline() const { return deadline_; }
  int ranks() const { return static_cast<int>(left_.size()); }
  HostMemory memory() const { return memory_(); }

  /// Returns what all ranks brought when all have come.
  std::shared_ptr<const Contributions> meet(int rank, Contribution contribution,
                                            std::string_view what) {
    std::unique_lock lock(mutex_);
    const Deadline deadline(deadline_);
    contribution.call = what;
    const auto meeting = meeting_;
    come(*meeting, rank, std::move(contribution));
    while (!meeting->complete) {
      if (!failure_) failure_ = find_lost(*meeting, what);
      if (!failure_ && deadline.expired()) failure_ = late(*meeting, what);
      if (failure_) {
        changed_.notify_all();
        throw *failure_;
      }
      changed_.wait_for(lock, std::chrono::milliseconds(deadline.milliseconds_left(kWakeEvery)));
    }
    return {meeting, &meeting->contributions};
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  bool has_left(int rank) const {
    const std::lock_guard lock(mutex_);
    return left_[static_cast<std::size_t>(rank)];
  }

 private:
  struct Meeting {
    explicit Meeting(int ranks)
        : contributions(static_cast<std::size_t>(ranks)), came(contributions.size()) {}
    Contributions contributions;
    std::vector<bool> came;
    std::size_t count = 0;
    bool complete = false;
  };

  void come(Meeting& meeting, int rank, Contribution contribution) {
    const auto r = static_cast<std::size_t>(rank);
    if (failure_) throw *failure_;
    check_argument(!meeting.came[r],
                   "rank {} entered a collective call twice at once: a rank's handle serves one "
                   "thread at a time",
                   rank);
    meeting.contributions[r] = std::move(contribution);
    meeting.came[r] = true;
    if (++meeting.count < meeting.came.size()) return;
    failure_ = check_calls(meeting.contributions);
    meeting.complete = !failure_;
    meeting_ = std::make_shared<Meeting>(ranks());
    changed_.notify_all();
  }

  /// What ranks agree on when the last one has come: nothing, or that they came to different calls.
  static std::optional<Error> check_calls(const Contributions& contributions) {
    try {
      for (std::size_t r = 0; r < contributions.size(); ++r) {
        check_same_call(contributions[0].call, static_cast<int>(r), contributions[r].call);
      }
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

  std::optional<Error> find_lost(const Meeting& meeting, std::string_view what) const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < left_.size(); ++r) {
      if (left_[r] && !meeting.came[r]) ranks.push_back(static_cast<int>(r));
    }
    if (ranks.empty()) return std::nullopt;
    return Error(ErrorCode::peer_lost,
                 fmt::format("{} left the group, waited for to {}: make a new group",
                             name_ranks(ranks), what));
  }

  Error late(const Meeting& meeting, std::string_view what) const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < left_.size(); ++r) {
      if (!meeting.came[r]) ranks.push_back(static_cast<int>(r));
    }
    return {ErrorCode::deadline, describe_late(ranks, deadline_, what)};
  }

  const std::chrono::nanoseconds deadline_;
  const MemorySource memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> left_;
  std::shared_ptr<Meeting> meeting_;
  std::optional<Error> failure_;
};

class ThreadMemory final : public SymmetricMemory {
 public:
  explicit ThreadMemory(std::vector<std::shared_ptr<Mapping>> parts) : parts_(std::move(parts)) {}
  std::int64_t bytes() const override { return parts_[0]->bytes(); }
  std::byte* base(int rank) const override {
    return parts_[static_cast<std::size_t>(rank)]->data();
  }

 private:
  std::vector<std::shared_ptr<Mapping>> parts_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~ThreadCommunicator() override { hub_->leave(rank_); }

  int rank() const override { return rank_; }
  int ranks() const override { return hub_->ranks(); }
  std::chrono::nanoseconds deadline() const override { return hub_->deadline(); }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> payload,
                                                 std::string_view what) override {
    check_payload(payload);
    Contribution mine;
    mine.payload.assign(payload.begin(), payload.end());
    const auto all = hub_->meet(rank_, std::move(mine), what);
    std::vector<std::vector<std::byte>> payloads;
    for (const Contribution& contribution : *all) payloads.push_back(contribution.payload);
    return payloads;
  }

  HostMemory host_memory() const override { return hub_->memory(); }

  std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) override {
    Contribution mine;
    mine.request = MemoryRequest{bytes, hub_->memory()};
    const auto asked = hub_->meet(rank_, std::move(mine), "ask for symmetric memory");
    std::vector<MemoryRequest> requests;
    for (const Contribution& contribution : *asked) requests.push_back(*contribution.request);
    check_requests(requests);

    const auto made = hub_->meet(rank_, make_part(bytes), "make symmetric memory");
    std::vector<std::shared_ptr<Mapping>> parts;
    for (const Contribution& contribution : *made) {
      if (contribution.failure) throw *contribution.failure;
      parts.push_back(contribution.mapping);
    }
    return std::make_unique<ThreadMemory>(std::move(parts));
  }

  std::optional<std::string> lost(int rank) const override {
    if (!hub_->has_left(rank)) return std::nullopt;
    return fmt::format("rank {} left the group", rank);
  }

 private:
  static Contribution make_part(std::int64_t bytes) {
    Contribution mine;
    try {
      mine.mapping = std::make_shared<Mapping>(Mapping::anonymous(bytes));
    } catch (const Error& error) {
      mine.failure = error;
    }
    return mine;
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_group(int ranks, const GroupOptions& options,
                                                             MemorySource memory) {
  check_argument(ranks >= 1, "a group of threads has at least 1 rank, got {}", ranks);
  check_argument(options.deadline.count() >= 0, "a deadline is zero (never) or positive, got {} ns",
                 options.deadline.count());
  const auto hub = std::make_shared<Hub>(ranks, options.deadline, std::move(memory));
  std::vector<std::shared_ptr<Communicator>> group;
  for (int rank = 0; rank < ranks; ++rank) {
    group.push_back(std::make_shared<ThreadCommunicator>(hub, rank));
  }
  return group;
}

}  // namespace megamoe
