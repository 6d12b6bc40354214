// Where the processes of a group exchange what a collective call needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symmetric/membership.hpp"
#include "symmetric/rendezvous.hpp"

namespace megamoe {

/// What all ranks brought, in rank order. `files` has an entry for each rank that brought one.
struct Gathered {
  std::vector<std::vector<std::byte>> payloads;
  std::vector<FileDescriptor> files;
};

/// The connections of one rank. A meeting passes through rank 0: the others send their part, and it
/// sends all parts to all. A failure is told to whoever is connected, and is final: every later
/// meeting throws it.
class Meetings {
 public:
  /// Meets at the rendezvous and enters the membership.
  explicit Meetings(const ProcessGroupOptions& options);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::chrono::nanoseconds deadline() const { return deadline_; }
  std::optional<std::string> lost(int rank) const { return membership_.lost(rank); }

  /// Collective. `file`: a descriptor to pass to all, or -1. Throws as Communicator::all_gather.
  Gathered meet(std::span<const std::byte> payload, int file, std::string_view what);

 private:
  Meetings(const ProcessGroupOptions& options, Connections connections);
  Gathered exchange(Message mine, std::string_view what);
  std::vector<Message> collect(Message mine, const Deadline& deadline, std::string_view what);
  std::optional<Message> hear(int rank, MessageKind wanted, std::string_view what);
  void check_not_given_up(int rank);
  Message await_result(const Deadline& deadline, std::string_view what);
  void distribute(const Message& result, const Deadline& deadline);
  Channel& channel(int rank);
  Error gone(int rank, const Channel& from, std::string_view what) const;
  Error late(const Deadline& deadline, std::string_view what) const;
  void tell_all(const Error& error);

  int rank_;
  int ranks_;
  std::chrono::nanoseconds deadline_;
  // Destroyed last: a rank says that it leaves before its connections close.
  std::vector<Channel> channels_;
  Membership membership_;
  std::uint64_t meeting_ = 0;
  std::optional<Error> failure_;
};

}  // namespace megamoe
