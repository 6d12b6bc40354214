// What this process and its children may leave behind on the host.
#pragma once

#include <set>
#include <string>

namespace megamoe::test {

struct HostState {
  std::set<std::string> shared_memory;  ///< names in /dev/shm
  std::size_t descriptors = 0;          ///< of this process
  std::set<std::string> sockets;        ///< abstract sockets of megamoe
};

HostState host_state();

/// "" if equal, else what was left.
std::string difference(const HostState& before, const HostState& after);

}  // namespace megamoe::test
