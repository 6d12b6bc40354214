#include "topology/placement.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/integers.hpp"

namespace megamoe {
namespace {

/// Where a processor comes in the order of the host's cores, and its node.
struct Seat {
  std::size_t order = 0;
  int node = 0;
};
using Seats = std::map<int, Seat>;

Seats seats_of(const HostTopology& host) {
  Seats seats;
  for (const HostCore& core : host.cores) {
    for (int cpu : core.cpus) seats[cpu] = {seats.size(), core.node};
  }
  return seats;
}

/// Neighbours next to each other; processors that the topology does not know come last.
CpuSet in_order(CpuSet cpus, const Seats& seats) {
  std::sort(cpus.begin(), cpus.end(), [&seats](int a, int b) {
    const auto key = [&seats](int cpu) {
      const auto seat = seats.find(cpu);
      return std::pair(seat == seats.end() ? seats.size() : seat->second.order, cpu);
    };
    return key(a) < key(b);
  });
  return cpus;
}

std::vector<int> nodes_of(const CpuSet& cpus, const Seats& seats) {
  std::set<int> nodes;
  for (int cpu : cpus) {
    const auto seat = seats.find(cpu);
    if (seat == seats.end()) return {};
    nodes.insert(seat->second.node);
  }
  return {nodes.begin(), nodes.end()};
}

/// How many ranks may use each processor.
std::map<int, std::int64_t> users_of(std::span<const CpuSet> masks) {
  std::map<int, std::int64_t> users;
  for (const CpuSet& mask : masks) {
    for (int cpu : mask) ++users[cpu];
  }
  return users;
}

}  // namespace

std::string RankPlace::describe() const {
  if (cpus.empty()) return "CPUs as the system gives them";
  const std::string where =
      nodes.empty()
          ? ""
          : fmt::format(" on node{} {}", nodes.size() == 1 ? "" : "s", fmt::join(nodes, ", "));
  return fmt::format("CPU{} {}{}", cpus.size() == 1 ? "" : "s", ranges_of(cpus), where);
}

std::vector<RankPlace> place_ranks(const HostTopology& host, std::span<const CpuSet> masks) {
  const Seats seats = seats_of(host);
  const std::map<int, std::int64_t> users = users_of(masks);
  std::map<CpuSet, std::int64_t> ranks_of;  // of each mask
  std::vector<CpuSet> sorted;
  for (const CpuSet& mask : masks) {
    CpuSet& own = sorted.emplace_back(mask);
    std::sort(own.begin(), own.end());
    ++ranks_of[own];
  }
  std::map<CpuSet, std::int64_t> placed;
  std::vector<RankPlace> places;
  for (const CpuSet& mask : sorted) {
    RankPlace& place = places.emplace_back();
    const auto size = static_cast<std::int64_t>(mask.size());
    const std::int64_t ranks = ranks_of[mask];
    const std::int64_t index = placed[mask]++;
    place.cpus = in_order(mask, seats);
    const bool ours =
        std::all_of(mask.begin(), mask.end(), [&](int cpu) { return users.at(cpu) == ranks; });
    if (ours && size >= ranks) {
      const auto at = [&](std::int64_t part) {
        return place.cpus.begin() + static_cast<std::ptrdiff_t>(part * size / ranks);
      };
      place.cpus = CpuSet(at(index), at(index + 1));
      place.narrowed = ranks > 1;
    }
    double share = 0;
    for (int cpu : mask) share += 1.0 / static_cast<double>(users.at(cpu));
    constexpr double kRounding = 1e-9;  // of thirds that should have added up to a whole
    place.share = max64(1, static_cast<std::int64_t>(share + kRounding));
    place.nodes = nodes_of(place.cpus, seats);
  }
  return places;
}

std::string RankBinding::describe() const {
  std::string text = threads.empty() ? "threads keep their mask" : "threads bound";
  if (!memory.empty()) {
    text += fmt::format(", memory {} {}", memory.size() == 1 ? "on node" : "in turn on nodes",
                        fmt::join(memory, ", "));
  }
  return text;
}

RankBinding bind_rank(const HostTopology& host, const RankPlace& place,
                      std::optional<bool> wanted) {
  const bool several_nodes = host.nodes().size() > 1;
  RankBinding binding;
  if (place.narrowed && wanted.value_or(several_nodes)) binding.threads = place.cpus;
  const bool threads_stay = !place.narrowed || !binding.threads.empty();
  if (several_nodes && threads_stay) binding.memory = place.nodes;
  return binding;
}

}  // namespace megamoe
