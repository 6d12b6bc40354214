#include "symmetric/barrier.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace megamoe {
namespace {

constexpr std::uint64_t pack(const Arrival& arrival) {
  return std::uint64_t{arrival.layer} << 32 | arrival.call;
}

constexpr Arrival unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

/// Whether the word's call is `call` or a later one; calls wrap around.
constexpr bool has_reached(std::uint64_t word, std::uint32_t call) {
  return static_cast<std::int32_t>(unpack(word).call - call) >= 0;
}

std::string describe_arrival(const WaitName& name, const Observation& now) {
  const Arrival wanted = unpack(now.wanted);
  const Arrival seen = unpack(now.seen);
  return fmt::format(
      "'arrival of rank {}': wanted call {} of layer {}, seen call {} of layer {}: rank {} is late "
      "or stuck",
      name.index, wanted.call, wanted.layer, seen.call, seen.layer, name.index);
}

/// One rank's words, and the call that it waits for.
struct Watch {
  std::uint64_t* words;
  std::uint32_t call;
};

/// A rank that has arrived may leave as soon as it knows of all the others, which can be while one
/// of them is still telling the rest.
bool has_not_arrived(const WaitName& name, int peer) {
  const Watch& watch = *static_cast<const Watch*>(name.context);
  return !has_reached(std::atomic_ref(watch.words[peer]).load(std::memory_order_acquire),
                      watch.call);
}

}  // namespace

GroupBarrier::GroupBarrier(std::string_view name, int rank, std::vector<std::uint64_t*> words)
    : name_(name), rank_(rank), words_(std::move(words)) {}

void GroupBarrier::arrive_and_wait(const Arrival& arrival, const Waiter& waiter,
                                   FaultBoard& faults) const {
  for (std::uint64_t* words : words_) {
    std::atomic_ref(words[rank_]).store(pack(arrival), std::memory_order_release);
  }
  for (int peer = 0; peer < static_cast<int>(words_.size()); ++peer) {
    wait_for(peer, arrival, waiter, faults);
  }
}

bool GroupBarrier::all_arrived(std::uint32_t call) const {
  std::uint64_t* const words = words_[static_cast<std::size_t>(rank_)];
  return std::all_of(words, words + words_.size(), [call](std::uint64_t& word) {
    return has_reached(std::atomic_ref(word).load(std::memory_order_acquire), call);
  });
}

void GroupBarrier::wait_for(int peer, const Arrival& arrival, const Waiter& waiter,
                            FaultBoard& faults) const {
  std::atomic_ref word(words_[static_cast<std::size_t>(rank_)][peer]);
  std::uint64_t seen = 0;
  const Watch watch{words_[static_cast<std::size_t>(rank_)], arrival.call};
  const WaitName name{
      name_, "arrival of rank", peer, WaitsFor::peers, describe_arrival, has_not_arrived, &watch};
  waiter.until(name, [&] {
    seen = word.load(std::memory_order_acquire);
    return Observation{has_reached(seen, arrival.call), seen, pack(arrival)};
  });
  const Arrival other = unpack(seen);
  if (other.call != arrival.call || other.layer == arrival.layer) return;
  faults.raise(ErrorCode::mismatch,
               fmt::format("rank {} called layer {} while rank {} called layer {} as call {} of "
                           "the group: start the layers of a group in the same order on every rank",
                           peer, other.layer, rank_, arrival.layer, arrival.call));
  faults.rethrow();
}

}  // namespace megamoe
