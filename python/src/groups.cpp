// Groups, and copies of a group that share nothing with it but their members.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "megamoe/group.hpp"

#include "api/group_state.hpp"
#include "base/check.hpp"
#include "python/src/bindings.hpp"

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

/// Collective. The members of `group` in a group of their own: other memory, barriers and calls.
Group duplicate(const Group& group) {
  Communicator& communicator = group.state().communicator();
  const GroupOptions options{.deadline = communicator.deadline()};
  const bool first = group.rank() == 0;
  // Made before it is known whether all ranks are threads of this process; cheap enough to drop.
  auto founded = first
                     ? std::make_unique<std::vector<Group>>(Group::threads(group.ranks(), options))
                     : nullptr;
  const Founder own{getpid(), std::chrono::steady_clock::now().time_since_epoch().count(),
                    reinterpret_cast<std::uintptr_t>(founded.get())};
  const std::vector<Founder> all = exchange(communicator, own);
  bool threads = true;
  for (const Founder& founder : all) threads = threads && founder.process == own.process;
  if (!threads) {
    return Group::processes({.rank = group.rank(),
                             .ranks = group.ranks(),
                             .rendezvous = fmt::format("copy-{}-{}", all[0].process, all[0].time),
                             .group = options});
  }
  const Group mine = (*reinterpret_cast<const std::vector<Group>*>(
      all[0].groups))[static_cast<std::size_t>(group.rank())];
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
          [](int rank, int ranks, const std::string& rendezvous, double deadline_s) {
            const ProcessGroupOptions options{.rank = rank,
                                              .ranks = ranks,
                                              .rendezvous = rendezvous,
                                              .group = options_of(deadline_s)};
            const nb::gil_scoped_release waiting;
            return Group::processes(options);
          },
          "rank"_a, "ranks"_a, "rendezvous"_a, "deadline"_a)
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
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("ranks", &Group::ranks);
}

}  // namespace megamoe::python
