// hwloc's handles, freed with their owner.
#pragma once

#include <memory>
#include <type_traits>

#include <hwloc.h>

#include "topology/topology.hpp"

namespace megamoe {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

/// This host's, loaded when it is first asked for; null where hwloc cannot.
hwloc_topology* host_handle();

Bitmap bitmap_of(const CpuSet& numbers);
CpuSet numbers_of(hwloc_const_bitmap_t bitmap);

}  // namespace megamoe
