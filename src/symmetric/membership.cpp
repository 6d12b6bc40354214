#include "symmetric/membership.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/check.hpp"
#include "symmetric/shared_file.hpp"

namespace megamoe {
namespace {

enum class Presence : std::uint32_t { expected, member, left };

struct flock lock_on(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

/// Written by its rank alone, on a cache line of its own.
struct alignas(64) Membership::Entry {
  std::uint32_t presence;  // Presence; release after the rest
  std::int32_t process;
  std::uint64_t meetings;  // number of the last meeting that the rank came to
};

FileDescriptor Membership::make_file(int ranks) {
  return make_shared_file("megamoe-membership", ranks * std::int64_t{sizeof(Entry)});
}

Membership::Membership(FileDescriptor file, int ranks, int rank)
    : file_(std::move(file)),
      page_(Mapping::shared(file_.get(), ranks * std::int64_t{sizeof(Entry)})),
      ranks_(ranks),
      rank_(rank),
      owner_(getpid()) {
  struct flock lock = lock_on(rank);
  if (fcntl(file_.get(), F_SETLK, &lock) != 0) {
    fail(ErrorCode::io, "rank {} cannot lock its entry in the group's membership file: {}", rank,
         std::strerror(errno));
  }
  entry(rank).process = owner_;
  std::atomic_ref(entry(rank).presence)
      .store(static_cast<std::uint32_t>(Presence::member), std::memory_order_release);
}

Membership::~Membership() {
  if (getpid() != owner_) return;
  std::atomic_ref(entry(rank_).presence)
      .store(static_cast<std::uint32_t>(Presence::left), std::memory_order_release);
}

Membership::Entry& Membership::entry(int rank) const {
  return reinterpret_cast<Entry*>(page_.data())[rank];
}

bool Membership::lock_is_held(int rank) const {
  struct flock lock = lock_on(rank);
  return fcntl(file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::optional<std::string> Membership::lost(int rank) const {
  if (rank == rank_) return std::nullopt;
  Entry& other = entry(rank);
  const auto presence = [&other] {
    return Presence{std::atomic_ref(other.presence).load(std::memory_order_acquire)};
  };
  const Presence before = presence();
  if (before == Presence::expected) return std::nullopt;
  if (before == Presence::member && lock_is_held(rank)) return std::nullopt;
  // The lock goes last when a rank leaves, so this second look tells leaving from dying.
  if (presence() == Presence::left) return fmt::format("rank {} left the group", rank);
  return fmt::format("rank {} (process {}) died", rank, other.process);
}

void Membership::come_to(std::uint64_t meeting) {
  std::atomic_ref(entry(rank_).meetings).store(meeting, std::memory_order_release);
}

std::vector<int> Membership::missing_at(std::uint64_t meeting) const {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (std::atomic_ref(entry(rank).meetings).load(std::memory_order_acquire) < meeting) {
      missing.push_back(rank);
    }
  }
  return missing;
}

}  // namespace megamoe
