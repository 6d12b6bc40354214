// Rank 0's side of the rendezvous.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "symmetric/rendezvous.hpp"

namespace megamoe {

/// Sleeps until something can be read from the descriptor, or the other end is gone, or the time is
/// over.
void wait_for_news(int descriptor, int milliseconds);

/// Whoever is no rank of any group (another user, bytes that are no hello) is turned away and
/// mentioned if the deadline passes. A hello that does not fit this group ends it at once, since
/// its ranks were started for different groups: every rank that came gets that error.
class Reception {
 public:
  explicit Reception(const ProcessGroupOptions& options);
  Connections receive_all();

 private:
  void listen_until_complete();
  bool complete() const;
  void wait_for_anyone() const;
  void accept_newcomers();
  void hear_newcomers();
  void hear_members();
  void admit(Channel channel, const Message& message);
  void check_hello(const Hello& hello, const Channel& channel) const;
  void tell_all(const Error& error) const;
  Error late() const;

  const ProcessGroupOptions& options_;
  Deadline deadline_;
  FileDescriptor listener_;
  std::vector<Channel> newcomers_;               // accepted, have not said hello
  std::vector<std::optional<Channel>> members_;  // by rank; entry 0 stays empty
  std::vector<std::string> turned_away_;
};

}  // namespace megamoe
