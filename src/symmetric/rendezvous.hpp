// How the processes of a group find each other: rank 0 listens, the others come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megamoe/group.hpp"

#include "symmetric/channel.hpp"

namespace megamoe {

/// Raised by every change to what the processes of a group say to each other.
inline constexpr std::uint32_t kProtocolVersion = 1;

/// Rank 0 passes every rank's file to every rank in one message.
inline constexpr int kMaxProcesses = static_cast<int>(kMaxMessageFiles);

/// The first message on a connection, as its data.
struct Hello {
  std::uint32_t version = kProtocolVersion;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
};

/// The name in the abstract socket namespace for a rendezvous of this user. Long texts are cut and
/// told apart by a hash.
std::string socket_name(std::string_view rendezvous);

struct Connections {
  FileDescriptor membership;      ///< the file that Membership locks
  std::vector<Channel> channels;  ///< rank 0: entry r - 1 leads to rank r; others: one, to rank 0
};

/// Collective. Throws as join_process_group does; an error that rank 0 throws reaches all who came.
Connections meet_at(const ProcessGroupOptions& options);

}  // namespace megamoe
