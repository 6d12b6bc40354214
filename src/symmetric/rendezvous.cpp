#include "symmetric/rendezvous.hpp"

#include <cstring>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/check.hpp"
#include "base/units.hpp"
#include "symmetric/reception.hpp"

namespace megamoe {
namespace {

// Ranks of one job start within milliseconds of each other; connecting costs microseconds.
constexpr auto kRetryEvery = std::chrono::milliseconds(5);
constexpr auto kPollSlice = std::chrono::milliseconds(100);

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Waits until rank 0 listens.
Channel find_rank_0(const ProcessGroupOptions& options) {
  const std::string name = socket_name(options.rendezvous);
  const Deadline deadline(options.group.deadline);
  while (true) {
    if (auto channel = connect_to(name)) return std::move(*channel);
    if (deadline.expired()) {
      fail(ErrorCode::deadline,
           "rank {} waited {} for rank 0 at the rendezvous '{}': start it (with the same "
           "rendezvous, user and network namespace), or raise the deadline",
           options.rank, as_text(deadline.limit()), options.rendezvous);
    }
    std::this_thread::sleep_for(kRetryEvery);
  }
}

void check_server(const Channel& channel, const ProcessGroupOptions& options) {
  if (channel.peer_user() == geteuid()) return;
  fail(ErrorCode::mismatch,
       "rank {} found a process of another user at the rendezvous '{}': wanted user {}, got user "
       "{} (process {}): choose another rendezvous",
       options.rank, options.rendezvous, geteuid(), channel.peer_user(), channel.peer_process());
}

/// Says hello and waits for the welcome.
Connections join(const ProcessGroupOptions& options) {
  Channel channel = find_rank_0(options);
  check_server(channel, options);
  // Counts anew: rank 0 began to wait before this and knows whom it waits for, so it speaks first.
  const Deadline deadline(options.group.deadline);
  const Hello hello{kProtocolVersion, options.rank, options.ranks};
  channel.send(MessageKind::hello, std::as_bytes(std::span(&hello, 1)), {}, deadline);

  Message message;
  Channel::State state = Channel::State::blocked;
  while ((state = channel.receive(message)) == Channel::State::blocked && !deadline.expired()) {
    wait_for_news(channel.descriptor(), deadline.milliseconds_left(kPollSlice));
  }
  if (state == Channel::State::blocked) {
    fail(ErrorCode::deadline,
         "rank {} waited {} for rank 0 (process {}) to complete the group '{}': raise the "
         "deadline if some rank needs longer",
         options.rank, as_text(deadline.limit()), channel.peer_process(), options.rendezvous);
  }
  if (state == Channel::State::complete && message.kind == MessageKind::failure) {
    throw read_failure(message);
  }
  if (state != Channel::State::complete || message.kind != MessageKind::welcome ||
      message.files.size() != 1) {
    fail(ErrorCode::peer_lost,
         "rank 0 (process {}) left the rendezvous '{}' before rank {} was welcome{}{}",
         channel.peer_process(), options.rendezvous, options.rank,
         channel.trouble().empty() ? "" : ": ", channel.trouble());
  }
  Connections connections{std::move(message.files[0]), {}};
  connections.channels.push_back(std::move(channel));
  return connections;
}

}  // namespace

std::string socket_name(std::string_view rendezvous) {
  // 107 bytes are there; prefix, user and hash take at most 45.
  constexpr std::size_t kReadable = 60;
  std::string name = fmt::format("megamoe/{}/{}", geteuid(), rendezvous.substr(0, kReadable));
  if (rendezvous.size() > kReadable) name += fmt::format("/{:016x}", fnv1a(rendezvous));
  return name;
}

Connections meet_at(const ProcessGroupOptions& options) {
  check_argument(options.ranks >= 1 && options.ranks <= kMaxProcesses,
                 "a group of processes has 1 to {} ranks, got {}", kMaxProcesses, options.ranks);
  check_argument(options.rank >= 0 && options.rank < options.ranks,
                 "a rank of a group of {} is 0 to {}, got {}", options.ranks, options.ranks - 1,
                 options.rank);
  check_argument(!options.rendezvous.empty() && options.rendezvous.find('/') == std::string::npos,
                 "a rendezvous is a text without '/', got '{}'", options.rendezvous);
  check_argument(options.group.deadline.count() >= 0,
                 "a deadline is zero (never) or positive, got {} ns",
                 options.group.deadline.count());
  if (options.rank != 0) return join(options);
  return Reception(options).receive_all();
}

}  // namespace megamoe
