// What this process and its children may leave behind on the host.
#pragma once

#include <set>
#include <string>

namespace megamoe::test {

struct HostState {
  std::set<std::string> shared_memory;  ///< names in /dev/shm
  std::size_t descriptors = 0;          ///< of this process
  std::set<std::string> sockets;        ///< abstract sockets of the rendezvous
};

/// Names in /dev/shm that hold "megamoe", and sockets that hold `rendezvous`: other tests run at
/// the same time.
HostState host_state(const std::string& rendezvous);

/// "" if equal, else what was left.
std::string difference(const HostState& before, const HostState& after);

}  // namespace megamoe::test
