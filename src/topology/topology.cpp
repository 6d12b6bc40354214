#include "topology/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.hpp"
#include "topology/hwloc.hpp"

namespace megamoe {
namespace {

/// Null if hwloc cannot load it. text: of a made-up topology; null: this host's.
TopologyHandle load(const char* text) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  TopologyHandle topology(raw);
  if (text != nullptr && hwloc_topology_set_synthetic(raw, text) != 0) return nullptr;
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

/// hwloc numbers cores along the tree of sockets, nodes and caches.
HostTopology read(hwloc_topology_t topology) {
  HostTopology host;
  // A system that tells of no cores tells of processors.
  const int told = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  const hwloc_obj_type_t type = told > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(topology, type, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(topology, type, core)) {
    const int node = hwloc_bitmap_first(core->nodeset);
    host.cores.push_back({numbers_of(core->cpuset), std::max(0, node)});
  }
  return host;
}

}  // namespace

Bitmap bitmap_of(const CpuSet& numbers) {
  Bitmap bitmap(hwloc_bitmap_alloc());
  for (int number : numbers) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(number));
  return bitmap;
}

CpuSet numbers_of(hwloc_const_bitmap_t bitmap) {
  CpuSet numbers;
  if (hwloc_bitmap_weight(bitmap) < 0) return numbers;  // without an end
  for (int number = hwloc_bitmap_first(bitmap); number >= 0;
       number = hwloc_bitmap_next(bitmap, number)) {
    numbers.push_back(number);
  }
  return numbers;
}

hwloc_topology* host_handle() {
  static const TopologyHandle topology = load(nullptr);
  return topology.get();
}

const HostTopology& host_topology() {
  static const HostTopology host = host_handle() != nullptr ? read(host_handle()) : HostTopology{};
  return host;
}

HostTopology synthetic_topology(const std::string& text) {
  const TopologyHandle topology = load(text.c_str());
  check_argument(topology != nullptr,
                 "hwloc makes no topology of '{}': a text such as 'numa:2 core:8 pu:2' is wanted",
                 text);
  return read(topology.get());
}

std::vector<int> HostTopology::nodes() const {
  std::vector<int> nodes;
  for (const HostCore& core : cores) nodes.push_back(core.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

std::string HostTopology::describe() const {
  if (cores.empty()) return "not told: taken for one node";
  struct Node {
    std::int64_t cores = 0;
    CpuSet cpus;
  };
  std::map<int, Node> nodes;
  for (const HostCore& core : cores) {
    Node& node = nodes[core.node];
    ++node.cores;
    node.cpus.insert(node.cpus.end(), core.cpus.begin(), core.cpus.end());
  }
  std::vector<std::string> parts;
  for (const auto& [number, node] : nodes) {
    parts.push_back(fmt::format("node {} with {} core{} (CPUs {})", number, node.cores,
                                node.cores == 1 ? "" : "s", ranges_of(node.cpus)));
  }
  return fmt::format("{} NUMA node{}: {}", nodes.size(), nodes.size() == 1 ? "" : "s",
                     fmt::join(parts, ", "));
}

std::string ranges_of(CpuSet cpus) {
  if (cpus.empty()) return "none";
  std::sort(cpus.begin(), cpus.end());
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    ranges.push_back(first == last ? fmt::format("{}", cpus[first])
                                   : fmt::format("{}-{}", cpus[first], cpus[last]));
    first = last + 1;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

}  // namespace megamoe
