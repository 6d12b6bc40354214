#include "symmetric/reception.hpp"

#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/units.hpp"
#include "symmetric/collective.hpp"
#include "symmetric/membership.hpp"

namespace megamoe {
namespace {

constexpr auto kPollSlice = std::chrono::milliseconds(100);
// How long telling others of a failure may take: they are waiting for it.
constexpr auto kTellWithin = std::chrono::milliseconds(500);
// Connections that say nothing cost a descriptor each; the oldest goes when there are more.
constexpr std::size_t kMaxNewcomers = 300;
constexpr std::size_t kMaxTurnedAway = 4;

}  // namespace

void wait_for_news(int descriptor, int milliseconds) {
  pollfd ready{descriptor, POLLIN, 0};
  poll(&ready, 1, milliseconds);
}

Reception::Reception(const ProcessGroupOptions& options)
    : options_(options),
      deadline_(options.group.deadline),
      members_(static_cast<std::size_t>(options.ranks)) {}

Connections Reception::receive_all() {
  Connections connections;
  try {
    connections.membership = Membership::make_file(options_.ranks);
    if (options_.ranks > 1) listen_until_complete();
    // Ranks may form their next group at the same name as soon as they are welcome.
    listener_ = FileDescriptor();
    const int file = connections.membership.get();
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      members_[rank]->send(MessageKind::welcome, {}, std::span(&file, 1), deadline_);
    }
  } catch (const Error& error) {
    tell_all(error);
    throw;
  }
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    connections.channels.push_back(std::move(*members_[rank]));
  }
  return connections;
}

void Reception::listen_until_complete() {
  listener_ = listen_at(socket_name(options_.rendezvous));
  while (!complete()) {
    wait_for_anyone();
    accept_newcomers();
    hear_newcomers();
    hear_members();
    if (!complete() && deadline_.expired()) throw late();
  }
}

bool Reception::complete() const {
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (!members_[rank]) return false;
  }
  return true;
}

void Reception::wait_for_anyone() const {
  std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
  for (const Channel& channel : newcomers_) watched.push_back({channel.descriptor(), POLLIN, 0});
  for (const auto& member : members_) {
    if (member) watched.push_back({member->descriptor(), POLLIN, 0});
  }
  poll(watched.data(), watched.size(), deadline_.milliseconds_left(kPollSlice));
}

void Reception::accept_newcomers() {
  while (auto channel = accept_from(listener_)) {
    if (channel->peer_user() != geteuid()) {
      turned_away_.push_back(fmt::format("a process of user {}", channel->peer_user()));
      continue;
    }
    if (newcomers_.size() == kMaxNewcomers) newcomers_.erase(newcomers_.begin());
    newcomers_.push_back(std::move(*channel));
  }
}

void Reception::hear_newcomers() {
  std::vector<Channel> silent;
  for (Channel& channel : newcomers_) {
    Message message;
    switch (channel.receive(message)) {
      case Channel::State::blocked:
        silent.push_back(std::move(channel));
        break;
      case Channel::State::complete:
        admit(std::move(channel), message);
        break;
      case Channel::State::garbage:
        turned_away_.push_back(
            fmt::format("process {}, which sent {}", channel.peer_process(), channel.trouble()));
        break;
      case Channel::State::closed:
        break;
    }
  }
  newcomers_ = std::move(silent);
}

/// A member says nothing before it is welcome, so what comes from one is its end.
void Reception::hear_members() {
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    Message message;
    if (!members_[rank] || members_[rank]->receive(message) == Channel::State::blocked) continue;
    fail(ErrorCode::peer_lost,
         "rank {} (process {}) died or left while the group '{}' formed: start all ranks again",
         rank, members_[rank]->peer_process(), options_.rendezvous);
  }
}

void Reception::admit(Channel channel, const Message& message) {
  Hello hello;
  if (message.kind != MessageKind::hello || message.data.size() < sizeof(hello)) {
    turned_away_.push_back(
        fmt::format("process {}, which did not say hello", channel.peer_process()));
    return;
  }
  std::memcpy(&hello, message.data.data(), sizeof(hello));
  try {
    check_hello(hello, channel);
  } catch (const Error& error) {
    channel.send(make_failure(error), Deadline(kTellWithin));
    throw;
  }
  members_[static_cast<std::size_t>(hello.rank)] = std::move(channel);
}

void Reception::check_hello(const Hello& hello, const Channel& channel) const {
  const pid_t process = channel.peer_process();
  if (hello.version != kProtocolVersion) {
    fail(ErrorCode::mismatch,
         "process {} speaks version {} of the group protocol and rank 0 version {}: run the same "
         "megamoe on all ranks",
         process, hello.version, kProtocolVersion);
  }
  if (hello.ranks != options_.ranks || hello.rank < 1 || hello.rank >= options_.ranks) {
    fail(ErrorCode::mismatch,
         "process {} came to the rendezvous '{}' as rank {} of {}, and rank 0 forms a group of {}: "
         "start all ranks with the same number of ranks",
         process, options_.rendezvous, hello.rank, hello.ranks, options_.ranks);
  }
  const auto& same_rank = members_[static_cast<std::size_t>(hello.rank)];
  if (same_rank) {
    fail(ErrorCode::mismatch, "processes {} and {} both claim rank {} of the group '{}'",
         same_rank->peer_process(), process, hello.rank, options_.rendezvous);
  }
  // The kernel gives 0 for a process that this PID namespace does not see.
  if (process == 0) return;
  bool known = process == getpid();
  for (const auto& member : members_)
    known = known || (member && member->peer_process() == process);
  check_argument(!known,
                 "process {} claims a second rank of the group '{}', rank {}: ranks in one process "
                 "are a thread group",
                 process, options_.rendezvous, hello.rank);
}

void Reception::tell_all(const Error& error) const {
  const Message failure = make_failure(error);
  const Deadline deadline(kTellWithin);
  for (const auto& member : members_) {
    if (member) member->send(failure, deadline);
  }
}

Error Reception::late() const {
  std::vector<int> missing;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (!members_[rank]) missing.push_back(static_cast<int>(rank));
  }
  std::string text = fmt::format(
      "{} did not join the group '{}' within {}: start all ranks, or raise the "
      "deadline if they need longer",
      name_ranks(missing), options_.rendezvous, as_text(deadline_.limit()));
  for (std::size_t n = 0; n < turned_away_.size() && n < kMaxTurnedAway; ++n) {
    text += (n == 0 ? "; turned away: " : ", ") + turned_away_[n];
  }
  return {ErrorCode::deadline, text};
}

}  // namespace megamoe
