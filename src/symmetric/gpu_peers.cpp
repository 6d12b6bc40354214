// Ranks in memory that the caller made symmetric: they meet in mailboxes at its beginning.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "device/gpu.hpp"
#include "symmetric/collective.hpp"
#include "symmetric/deadline.hpp"
#include "symmetric/gpu_member.hpp"

namespace megamoe {
namespace {

// A rank has two mailboxes, for rounds in turn: it writes one again only after it has read every
// rank's next round, so everyone has read what stood there.
struct Mailbox {
  std::uint64_t round;        ///< the last that is written, from 1
  std::uint64_t total_bytes;  ///< of the message that the pieces make up
  std::byte piece[kPeerMailboxBytes / 2 - 16];
};
static_assert(2 * sizeof(Mailbox) == kPeerMailboxBytes);
constexpr auto kPollInterval = std::chrono::microseconds(100);

/// The mailboxes of all ranks as one rank sees them; copies go by a stream of its own, so that they
/// wait for no kernel.
class Mailboxes {
 public:
  explicit Mailboxes(const PeerGroupOptions& options)
      : options_(options), current_(options.device) {}

  void write(std::uint64_t round, std::uint64_t total, std::span<const std::byte> piece) {
    std::byte* const box = at(options_.rank, round);
    stream_.copy(box + offsetof(Mailbox, piece), piece.data(),
                 static_cast<std::int64_t>(piece.size()));
    stream_.copy(box + offsetof(Mailbox, total_bytes), &total, sizeof total);
    stream_.wait();
    stream_.copy(box + offsetof(Mailbox, round), &round, sizeof round);
    stream_.wait();
  }

  std::uint64_t round_of(int rank, std::uint64_t round) const {
    std::uint64_t written = 0;
    read(&written, at(rank, round) + offsetof(Mailbox, round), sizeof written);
    return written;
  }
  std::uint64_t total_of(int rank, std::uint64_t round) const {
    std::uint64_t total = 0;
    read(&total, at(rank, round) + offsetof(Mailbox, total_bytes), sizeof total);
    return total;
  }
  void read_piece(int rank, std::uint64_t round, std::span<std::byte> piece) const {
    read(piece.data(), at(rank, round) + offsetof(Mailbox, piece), piece.size());
  }

 private:
  std::byte* at(int rank, std::uint64_t round) const {
    return static_cast<std::byte*>(options_.parts[static_cast<std::size_t>(rank)]) +
           round % 2 * sizeof(Mailbox);
  }
  void read(void* to, const std::byte* from, std::size_t bytes) const {
    stream_.copy(to, from, static_cast<std::int64_t>(bytes));
    stream_.wait();
  }

  const PeerGroupOptions& options_;
  device::CurrentDevice current_;  // for as long as the stream is made and used
  device::Stream stream_;
};

class PeerCommunicator final : public Communicator {
 public:
  explicit PeerCommunicator(const PeerGroupOptions& options) : options_(options) {}

  int rank() const override { return options_.rank; }
  int ranks() const override { return static_cast<int>(options_.parts.size()); }
  std::chrono::nanoseconds deadline() const override { return options_.group.deadline; }
  // Nothing tells of the others but what they write.
  std::optional<std::string> lost(int) const override { return std::nullopt; }
  HostMemory host_memory() const override { return available_host_memory(); }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> payload,
                                                 std::string_view what) override {
    check_payload(payload);
    if (failure_) throw *failure_;
    std::vector<std::byte> message(what.size() + 1);
    std::memcpy(message.data(), what.data(), what.size());
    message.insert(message.end(), payload.begin(), payload.end());
    try {
      auto all = exchange(message, what);
      for (std::size_t r = 0; r < all.size(); ++r) {
        const auto name = std::string(reinterpret_cast<const char*>(all[r].data()));
        check_same_call(std::string(reinterpret_cast<const char*>(all[0].data())),
                        static_cast<int>(r), name);
      }
      for (auto& other : all) {
        other.erase(other.begin(), std::find(other.begin(), other.end(), std::byte{0}) + 1);
      }
      return all;
    } catch (const Error& error) {
      failure_ = error;
      throw;
    }
  }

  std::unique_ptr<SymmetricMemory> allocate(std::int64_t) override {
    fail(ErrorCode::unsupported,
         "ranks that meet in the caller's GPU memory have no host memory in common");
  }

 private:
  /// All ranks' messages, in as many rounds as the longest needs.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine,
                                               std::string_view what) {
    Mailboxes boxes(options_);
    const Deadline deadline(options_.group.deadline);
    std::vector<std::vector<std::byte>> all(options_.parts.size());
    std::size_t longest = mine.size();
    for (std::size_t at = 0; at < longest; at += sizeof(Mailbox::piece)) {
      const std::uint64_t round = ++round_;
      const std::size_t begin = std::min(at, mine.size());
      boxes.write(round, mine.size(),
                  mine.subspan(begin, std::min(mine.size() - begin, sizeof(Mailbox::piece))));
      wait_for(boxes, round, deadline, what);
      for (int rank = 0; rank < ranks(); ++rank) {
        auto& message = all[static_cast<std::size_t>(rank)];
        if (at == 0) message.resize(boxes.total_of(rank, round));
        longest = std::max(longest, message.size());
        if (at >= message.size()) continue;
        const std::size_t count = std::min(message.size() - at, sizeof(Mailbox::piece));
        boxes.read_piece(rank, round, std::span(message).subspan(at, count));
      }
    }
    return all;
  }

  void wait_for(const Mailboxes& boxes, std::uint64_t round, const Deadline& deadline,
                std::string_view what) const {
    for (;;) {
      std::vector<int> missing;
      for (int rank = 0; rank < ranks(); ++rank) {
        if (boxes.round_of(rank, round) < round) missing.push_back(rank);
      }
      if (missing.empty()) return;
      if (deadline.expired()) {
        throw Error(ErrorCode::deadline, describe_late(missing, options_.group.deadline, what));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  PeerGroupOptions options_;
  std::uint64_t round_ = 0;
  std::optional<Error> failure_;
};

class CallersParts final : public SymmetricMemory {
 public:
  CallersParts(const std::vector<void*>& parts, std::int64_t offset, std::int64_t bytes)
      : bytes_(bytes) {
    for (void* part : parts) bases_.push_back(static_cast<std::byte*>(part) + offset);
  }
  std::int64_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override { return bases_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::byte*> bases_;
  std::int64_t bytes_;
};

class PeerMember final : public GpuMember {
 public:
  explicit PeerMember(const PeerGroupOptions& options) : options_(options) {}
  int device() const override { return options_.device; }
  int sharers() const override { return 1; }
  std::string_view way() const override { return "the caller's symmetric memory"; }
  bool takes_back() const override { return false; }

  /// Pieces are cut one after another and never given back: the memory is the group's.
  std::unique_ptr<SymmetricMemory> allocate(std::int64_t bytes) override {
    const std::int64_t whole = round_up(bytes, 1024);
    if (whole > options_.bytes - used_) {
      fail(ErrorCode::out_of_memory,
           "an arena needs {} bytes, and {} of the {} of each part are left: make the parts larger "
           "(Group::peer_bytes says how large)",
           whole, options_.bytes - used_, options_.bytes);
    }
    const std::int64_t offset = std::exchange(used_, used_ + whole);
    return std::make_unique<CallersParts>(options_.parts, offset, bytes);
  }

 private:
  PeerGroupOptions options_;
  std::int64_t used_ = kPeerMailboxBytes;
};

}  // namespace

GpuPeer join_gpu_peers(const PeerGroupOptions& options) {
  device::check_usable(options.device);
  check_argument(!options.parts.empty(), "no parts: one for each rank is wanted");
  const auto ranks = static_cast<int>(options.parts.size());
  check_argument(options.rank >= 0 && options.rank < ranks, "rank {} of {}: 0 to {} is wanted",
                 options.rank, ranks, ranks - 1);
  check_argument(options.bytes > kPeerMailboxBytes,
                 "parts of {} bytes: more than {} are wanted (Group::peer_bytes says how many)",
                 options.bytes, kPeerMailboxBytes);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto address =
        reinterpret_cast<std::uintptr_t>(options.parts[static_cast<std::size_t>(rank)]);
    check_argument(address != 0 && address % 1024 == 0,
                   "the part of rank {} begins at {:#x}: an address aligned to 1024 is wanted",
                   rank, address);
  }
  auto communicator = std::make_shared<PeerCommunicator>(options);
  communicator->all_gather({}, "form the group");
  return {std::move(communicator), std::make_shared<PeerMember>(options)};
}

}  // namespace megamoe
