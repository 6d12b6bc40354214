#include "symmetric/wait.hpp"

#include <algorithm>
#include <thread>

#include "base/check.hpp"
#include "base/units.hpp"

namespace megamoe {
namespace {

// Looks that spin: about 5 us, some round trips between cores. More would starve the rank that is
// waited for when ranks outnumber cores.
constexpr std::int64_t kSpins = 100;
// Yielding is right while the other side is about to be done; after this, sleeping costs nothing.
constexpr auto kYieldFor = std::chrono::milliseconds(1);
constexpr auto kSleep = std::chrono::microseconds(40);
// Asking after a peer is a system call; nobody minds 10 ms once a rank has died.
constexpr auto kLivenessEvery = std::chrono::milliseconds(10);

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

std::string describe(const WaitName& name, const Observation& now) {
  if (name.describe != nullptr) return name.describe(name, now);
  return fmt::format("'{}' [{}]: wanted {}, seen {}", name.signal, name.index, now.wanted,
                     now.seen);
}

}  // namespace

Waiter::Waiter(const Communicator& communicator, FaultBoard& faults)
    : communicator_(communicator), faults_(faults) {}

void Waiter::check() const {
  if (faults_.raised()) faults_.rethrow();
}

Waiter::Patience::Patience(const Waiter& waiter, Clock::time_point count_from)
    : waiter_(waiter),
      first_look_(Clock::now()),
      count_from_(std::max(first_look_, count_from)),
      next_liveness_(first_look_ + kLivenessEvery) {}

void Waiter::Patience::step(const WaitName& name, const Observation& now) {
  waiter_.check();
  if (++steps_ <= kSpins) return pause_core();
  const int rank = waiter_.communicator_.rank();
  if (lost_) {
    give_up(ErrorCode::peer_lost,
            fmt::format("{} while rank {} waited in {} for {}: make a new group", *lost_, rank,
                        name.role, describe(name, now)));
  }
  const Clock::time_point time = Clock::now();
  const auto deadline = waiter_.communicator_.deadline();
  const bool expired = deadline.count() != 0 && time - count_from_ >= deadline;
  if (name.on == WaitsFor::peers && (expired || time >= next_liveness_)) {
    watch_peers(name, time);
    if (lost_) return;
  }
  if (expired) {
    give_up(ErrorCode::deadline,
            fmt::format("rank {} waited {} in {} for {}; raise the deadline if it needs "
                        "longer",
                        rank, as_text(time - count_from_), name.role, describe(name, now)));
  }
  back_off(time);
}

// A peer may do its part and leave between the look that failed and this question, so a lost peer
// counts only if the next look, which sees all that the peer wrote, fails as well.
void Waiter::Patience::watch_peers(const WaitName& name, Clock::time_point time) {
  next_liveness_ = time + kLivenessEvery;
  const Communicator& group = waiter_.communicator_;
  for (int peer = 0; peer < group.ranks() && !lost_; ++peer) {
    lost_ = group.lost(peer);
    if (lost_ && name.awaits != nullptr && !name.awaits(name, peer)) lost_.reset();
  }
}

void Waiter::Patience::back_off(Clock::time_point time) const {
  if (time - first_look_ < kYieldFor) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

void Waiter::Patience::give_up(ErrorCode code, std::string_view message) const {
  waiter_.faults_.raise(code, message);
  waiter_.faults_.rethrow();
}

}  // namespace megamoe
