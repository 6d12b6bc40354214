#include "symmetric/meeting.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>

#include "base/check.hpp"
#include "base/units.hpp"
#include "symmetric/collective.hpp"
#include "symmetric/reception.hpp"

namespace megamoe {
namespace {

// A connection that closes is noticed at once; only a rank whose connection somebody else holds
// open (a forked copy) needs the lock to be asked.
constexpr auto kPollSlice = std::chrono::milliseconds(50);
// How long telling others of a failure may take: they are waiting for it, or will read it later.
constexpr auto kTellWithin = std::chrono::milliseconds(100);
// A dying process closes its connections and drops its locks within this.
constexpr auto kDeathTakes = std::chrono::milliseconds(500);

using Bytes = std::span<const std::byte>;

/// A part is the length of the text as u64, the text, then the payload; a result is, for each rank,
/// the length as u64 and the payload.
void append(std::vector<std::byte>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void append_sized(std::vector<std::byte>& to, Bytes bytes) {
  const std::uint64_t size = bytes.size();
  append(to, std::as_bytes(std::span(&size, 1)));
  append(to, bytes);
}

Bytes take_sized(Bytes& from) {
  std::uint64_t size = 0;
  if (from.size() < sizeof(size)) fail(ErrorCode::internal, "a message that is cut short");
  std::memcpy(&size, from.data(), sizeof(size));
  from = from.subspan(sizeof(size));
  if (from.size() < size) fail(ErrorCode::internal, "a message that is cut short");
  const Bytes taken = from.first(size);
  from = from.subspan(size);
  return taken;
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Joins the parts of all ranks, which must belong to the same collective call.
Message combine(std::vector<Message> parts) {
  Message result{MessageKind::result, {}, {}};
  Bytes first = parts[0].data;
  const std::string_view what = text_of(take_sized(first));
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    Bytes rest = parts[rank].data;
    const std::string_view other = text_of(take_sized(rest));
    check_same_call(what, static_cast<int>(rank), other);
    append_sized(result.data, rest);
    for (FileDescriptor& file : parts[rank].files) result.files.push_back(std::move(file));
  }
  return result;
}

Gathered split(Message result, int ranks) {
  Gathered gathered;
  Bytes rest = result.data;
  for (int rank = 0; rank < ranks; ++rank) {
    const Bytes payload = take_sized(rest);
    gathered.payloads.emplace_back(payload.begin(), payload.end());
  }
  gathered.files = std::move(result.files);
  return gathered;
}

FileDescriptor duplicate(int file) {
  FileDescriptor copy(fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!copy) fail(ErrorCode::io, "cannot duplicate a descriptor: {}", std::strerror(errno));
  return copy;
}

}  // namespace

Meetings::Meetings(const ProcessGroupOptions& options) : Meetings(options, meet_at(options)) {}

Meetings::Meetings(const ProcessGroupOptions& options, Connections connections)
    : rank_(options.rank),
      ranks_(options.ranks),
      deadline_(options.group.deadline),
      channels_(std::move(connections.channels)),
      membership_(std::move(connections.membership), options.ranks, options.rank) {}

Channel& Meetings::channel(int rank) {
  return channels_[rank_ == 0 ? static_cast<std::size_t>(rank - 1) : 0];
}

Gathered Meetings::meet(std::span<const std::byte> payload, int file, std::string_view what) {
  check_payload(payload);
  if (failure_) throw *failure_;
  Message mine{MessageKind::payload, {}, {}};
  append_sized(mine.data, std::as_bytes(std::span(what)));
  append(mine.data, payload);
  try {
    if (file >= 0) mine.files.push_back(duplicate(file));
    return exchange(std::move(mine), what);
  } catch (const Error& error) {
    failure_ = error;
    tell_all(error);
    throw;
  }
}

Gathered Meetings::exchange(Message mine, std::string_view what) {
  const Deadline deadline(deadline_);
  membership_.come_to(++meeting_);
  if (rank_ == 0) {
    Message result = combine(collect(std::move(mine), deadline, what));
    distribute(result, deadline);
    return split(std::move(result), ranks_);
  }
  // If rank 0 is gone, what it said before is still there to be read.
  if (channel(0).send(mine, deadline) == Channel::State::blocked) throw late(deadline, what);
  return split(await_result(deadline, what), ranks_);
}

std::vector<Message> Meetings::collect(Message mine, const Deadline& deadline,
                                       std::string_view what) {
  std::vector<std::optional<Message>> parts(static_cast<std::size_t>(ranks_));
  parts[0] = std::move(mine);
  while (true) {
    std::vector<pollfd> missing;
    for (int rank = 1; rank < ranks_; ++rank) {
      auto& part = parts[static_cast<std::size_t>(rank)];
      if (!part) part = hear(rank, MessageKind::payload, what);
      if (!part) missing.push_back({channel(rank).descriptor(), POLLIN, 0});
    }
    if (missing.empty()) break;
    if (deadline.expired()) throw late(deadline, what);
    poll(missing.data(), missing.size(), deadline.milliseconds_left(kPollSlice));
  }
  for (int rank = 1; rank < ranks_; ++rank) check_not_given_up(rank);
  std::vector<Message> all;
  for (auto& part : parts) all.push_back(std::move(*part));
  return all;
}

/// A rank that came and whose deadline passed before the last one came has said so behind its part.
void Meetings::check_not_given_up(int rank) {
  Message message;
  if (channel(rank).receive(message) == Channel::State::complete &&
      message.kind == MessageKind::failure) {
    throw read_failure(message);
  }
}

Message Meetings::await_result(const Deadline& deadline, std::string_view what) {
  while (true) {
    if (auto result = hear(0, MessageKind::result, what)) return std::move(*result);
    if (deadline.expired()) throw late(deadline, what);
    wait_for_news(channel(0).descriptor(), deadline.milliseconds_left(kPollSlice));
  }
}

/// What `rank` has sent, if all of it is here. Throws when it failed or is gone.
std::optional<Message> Meetings::hear(int rank, MessageKind wanted, std::string_view what) {
  Channel& from = channel(rank);
  Message message;
  Channel::State state = from.receive(message);
  // What a rank sent before it was lost has arrived by now, so a second look finds it.
  if (state == Channel::State::blocked && lost(rank)) {
    state = from.receive(message);
    if (state == Channel::State::blocked) state = Channel::State::closed;
  }
  if (state == Channel::State::blocked) return std::nullopt;
  if (state != Channel::State::complete) throw gone(rank, from, what);
  if (message.kind == MessageKind::failure) throw read_failure(message);
  if (message.kind == wanted) return message;
  fail(ErrorCode::internal, "rank {} sent a message of kind {}, wanted kind {}", rank,
       static_cast<int>(message.kind), static_cast<int>(wanted));
}

void Meetings::distribute(const Message& result, const Deadline& deadline) {
  for (int rank = 1; rank < ranks_; ++rank) {
    // A rank that died after it came harms the next meeting, not this one.
    if (channel(rank).send(result, deadline) != Channel::State::blocked) continue;
    fail(ErrorCode::deadline, "rank {} did not read what rank 0 sent within {}: it is stuck", rank,
         as_text(deadline.limit()));
  }
}

Error Meetings::gone(int rank, const Channel& from, std::string_view what) const {
  if (!from.trouble().empty()) {
    return {ErrorCode::io, fmt::format("rank {} sent {}", rank, from.trouble())};
  }
  const Deadline patience(kDeathTakes);
  std::optional<std::string> sentence = lost(rank);
  while (!sentence && !patience.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sentence = lost(rank);
  }
  return {ErrorCode::peer_lost,
          fmt::format("{}, waited for to {}: make a new group",
                      sentence.value_or(fmt::format("rank {} closed its connection", rank)), what)};
}

Error Meetings::late(const Deadline& deadline, std::string_view what) const {
  const std::vector<int> missing = membership_.missing_at(meeting_);
  if (missing.empty()) {
    return {ErrorCode::deadline,
            fmt::format("all ranks came to {}, but rank 0 did not answer within {}: raise the "
                        "deadline if it needs longer",
                        what, as_text(deadline.limit()))};
  }
  return {ErrorCode::deadline, describe_late(missing, deadline_, what)};
}

void Meetings::tell_all(const Error& error) {
  const Message failure = make_failure(error);
  const Deadline deadline(kTellWithin);
  for (const Channel& to : channels_) to.send(failure, deadline);
}

}  // namespace megamoe
