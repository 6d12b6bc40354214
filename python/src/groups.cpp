// Groups, and copies of a group that share nothing with it but their members.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "megamoe/group.hpp"

#include "api/group_state.hpp"
#include "base/check.hpp"
#include "python/src/bindings.hpp"
#include "python/src/places.hpp"

namespace megamoe::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

GroupOptions options_of(double deadline_s) {
  check_argument(std::isfinite(deadline_s) && deadline_s >= 0 && deadline_s < 1e9,
                 "the deadline is {} seconds: 0 (for ever) or a positive number is wanted",
                 deadline_s);
  return {.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(deadline_s * 1e9))};
}

/// What each rank tells the others to found another group of the same members.
struct Founder {
  std::int64_t process;
  std::int64_t time;      ///< rank 0's names the group
  std::uintptr_t groups;  ///< rank 0's: groups that wait for the threads of its process
  int device;             ///< -1: the CPU
};

std::vector<Founder> exchange(Communicator& communicator, const Founder& own) {
  std::vector<Founder> all;
  for (const auto& payload : communicator.all_gather(std::as_bytes(std::span(&own, 1)),
                                                     "founding another group of these ranks")) {
    Founder founder{};
    check_argument(payload.size() == sizeof founder, "a rank is not founding another group");
    std::memcpy(&founder, payload.data(), sizeof founder);
    all.push_back(founder);
  }
  return all;
}

std::vector<Group> groups_of_this_process(const std::vector<Founder>& members,
                                          const GroupOptions& options) {
  if (members[0].device < 0) return Group::threads(static_cast<int>(members.size()), options);
  std::vector<int> devices;
  for (const Founder& member : members) devices.push_back(member.device);
  return Group::devices(devices, options);
}

/// Collective. The members of `group` in a group of their own: other memory, barriers and calls.
Group duplicate(const Group& group) {
  Communicator& communicator = group.state().communicator();
  const GroupOptions options{.deadline = communicator.deadline()};
  const Place place = place_of(group);
  Founder own{getpid(), std::chrono::steady_clock::now().time_since_epoch().count(), 0,
              place == kHost ? -1 : place.device_id};
  const std::vector<Founder> all = exchange(communicator, own);
  const bool together = std::ranges::all_of(
      all, [&own](const Founder& member) { return member.process == own.process; });
  if (!together) {
    ProcessGroupOptions processes{
        .rank = group.rank(),
        .ranks = group.ranks(),
        .rendezvous = fmt::format("copy-{}-{}", all[0].process, all[0].time),
        .group = options};
    if (own.device >= 0) processes.device = own.device;
    return Group::processes(processes);
  }
  std::vector<Group> founded;
  if (group.rank() == 0) {
    founded = groups_of_this_process(all, options);
    own.groups = reinterpret_cast<std::uintptr_t>(&founded);
  }
  const std::uintptr_t first = exchange(communicator, own)[0].groups;
  const Group mine =
      (*reinterpret_cast<const std::vector<Group>*>(first))[static_cast<std::size_t>(group.rank())];
  // Rank 0 keeps them until all have taken theirs.
  exchange(communicator, own);
  return mine;
}

}  // namespace

void bind_groups(nb::module_& module) {
  nb::class_<Group>(module, "Group")
      .def_static(
          "single", [](double deadline_s) { return Group::single(options_of(deadline_s)); },
          "deadline"_a)
      .def_static(
          "threads",
          [](int ranks, double deadline_s) {
            return Group::threads(ranks, options_of(deadline_s));
          },
          "ranks"_a, "deadline"_a)
      .def_static(
          "processes",
          [](int rank, int ranks, const std::string& rendezvous, double deadline_s,
             std::optional<int> device) {
            const ProcessGroupOptions options{.rank = rank,
                                              .ranks = ranks,
                                              .rendezvous = rendezvous,
                                              .group = options_of(deadline_s),
                                              .device = device};
            const nb::gil_scoped_release waiting;
            return Group::processes(options);
          },
          "rank"_a, "ranks"_a, "rendezvous"_a, "deadline"_a, "device"_a.none())
      .def_static(
          "devices",
          [](const std::vector<int>& devices, double deadline_s) {
            return Group::devices(devices, options_of(deadline_s));
          },
          "devices"_a, "deadline"_a)
      .def("duplicate",
           [](const Group& group) {
             const nb::gil_scoped_release waiting;
             return duplicate(group);
           })
      .def(
          "meet",
          [](const Group& group, const std::string& what) {
            const nb::gil_scoped_release waiting;
            group.state().communicator().all_gather({}, what);
          },
          "what"_a)
      .def_prop_ro("device",
                   [](const Group& group) -> std::optional<int> {
                     const Place place = place_of(group);
                     return place == kHost ? std::nullopt : std::optional(place.device_id);
                   })
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("ranks", &Group::ranks);
}

}  // namespace megamoe::python
