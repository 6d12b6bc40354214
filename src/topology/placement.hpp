// Which processors and which memory each rank of a host has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace megamoe {

struct RankPlace {
  /// The processors that the rank's threads run on. Empty where the system does not say.
  CpuSet cpus;
  /// The NUMA nodes that these belong to, ascending; empty where that is not known.
  std::vector<int> nodes;
  /// The rank's share: processors that several ranks use count in parts; at least 1.
  std::int64_t share = 1;
  /// Whether `cpus` are fewer than the rank's own mask allows: its threads are to be bound.
  bool narrowed = false;

  /// "CPUs 0-7 on node 0"
  std::string describe() const;
};

/// Pure. masks: of each rank, the processors that it may use, as its launcher left them.
///
/// * A rank whose mask touches no other rank's has all of it.
/// * Ranks of one mask part it into runs of neighbours of (nearly) equal length, in rank order:
/// ranks
///   that share a node are next to each other, and where nodes divide by ranks no rank spans two.
/// * Ranks that are more than the processors of their mask, or whose mask overlaps another one in
///   part, keep the mask: the system's scheduler shares it out.
std::vector<RankPlace> place_ranks(const HostTopology& host, std::span<const CpuSet> masks);

/// What is to be done for a rank at its place.
struct RankBinding {
  CpuSet threads;           ///< that its threads are bound to; empty: they keep their mask
  std::vector<int> memory;  ///< the nodes for its arena and packed weights; empty: wherever touched

  /// "threads bound, memory on node 0"
  std::string describe() const;
};

/// Pure. wanted: whether to bind threads; absent: on a host of several NUMA nodes, since on one
/// node there is nothing to win. Memory is placed where there are several nodes and the threads
/// stay near it.
RankBinding bind_rank(const HostTopology& host, const RankPlace& place, std::optional<bool> wanted);

}  // namespace megamoe
