// The processors of the host, and which of them are near each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megamoe {

/// Numbers of logical processors, as the system counts them.
using CpuSet = std::vector<int>;

/// A core: one or more logical processors that share its arithmetic.
struct HostCore {
  CpuSet cpus;
  int node = 0;  ///< the NUMA node whose memory is nearest
};

/// Cores in an order in which neighbours have most in common: caches, then nodes, then sockets.
struct HostTopology {
  std::vector<HostCore> cores;

  /// The NUMA nodes that have cores, ascending.
  std::vector<int> nodes() const;
  /// "2 NUMA nodes: node 0 with 8 cores (CPUs 0-7, 16-23), node 1 with ..."
  std::string describe() const;
};

/// Of this host, read when it is first asked for. No cores where the system does not say.
const HostTopology& host_topology();

/// One that hwloc makes up of a text such as "numa:2 core:8 pu:2". Throws Error{invalid_argument}.
HostTopology synthetic_topology(const std::string& text);

/// "0-7, 16-23"; "none".
std::string ranges_of(CpuSet cpus);

}  // namespace megamoe
