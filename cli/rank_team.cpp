#include "cli/rank_team.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "megamoe/backend.hpp"
#include "megamoe/error.hpp"

#include "api/group_state.hpp"
#include "api/layer_identity.hpp"
#include "api/layer_plan.hpp"
#include "base/integers.hpp"
#include "base/names.hpp"
#include "device/gpu.hpp"

namespace megamoe::cli {
namespace {

/// A name that no other run on this host has now.
std::string fresh_rendezvous() {
  return fmt::format("run-{}-{}", getpid(),
                     std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Collective: every rank's text, in pieces of what one all-gather takes.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const auto piece_of = [&](std::int64_t round) {
    const auto begin = std::min(text.size(), static_cast<std::size_t>(round * kMaxPayloadBytes));
    return std::as_bytes(std::span(text).subspan(
        begin, std::min(text.size() - begin, static_cast<std::size_t>(kMaxPayloadBytes))));
  };
  std::vector<std::string> texts(static_cast<std::size_t>(communicator.ranks()));
  bool more = true;
  for (std::int64_t round = 0; more; ++round) {
    const auto pieces = communicator.all_gather(piece_of(round), "gathering the results");
    more = false;
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      texts[rank].append(reinterpret_cast<const char*>(pieces[rank].data()), pieces[rank].size());
      more = more || static_cast<std::int64_t>(pieces[rank].size()) == kMaxPayloadBytes;
    }
  }
  return texts;
}

/// A rank's own error before one that only says that another gave up.
void throw_first_cause(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr follower;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      const bool follows =
          error.code() == ErrorCode::aborted || error.code() == ErrorCode::peer_lost;
      if (!follows) throw;
      if (!follower) follower = failure;
    }
  }
  if (follower) std::rethrow_exception(follower);
}

}  // namespace

RankTeam RankTeam::forked(std::int64_t ranks, std::chrono::nanoseconds deadline) {
  return {ranks, deadline};
}

RankTeam RankTeam::launched(const LaunchedRank& rank, std::chrono::nanoseconds deadline) {
  RankTeam team(rank.ranks, deadline);
  team.launched_ = rank;
  return team;
}

RankTeam RankTeam::on_devices() const {
  RankTeam team(ranks_, deadline_);
  team.launched_ = launched_;
  team.backend_ = Backend::cuda;
  return team;
}

int RankTeam::device_of(std::int64_t rank) const {
  return static_cast<int>(rank % max64(1, cuda_devices()));
}

std::string RankTeam::description() const {
  if (backend_ == Backend::cuda && !launched_) {
    return fmt::format("{} ranks on {} CUDA devices", ranks_, min64(ranks_, cuda_devices()));
  }
  if (!launched_) return fmt::format("{} rank processes", ranks_);
  return fmt::format("{} ranks, started by {}", ranks_, name_of(launched_->launcher));
}

const Group& RankTeam::meet() {
  if (!group_) {
    group_ = Group::processes({.rank = static_cast<int>(launched_->rank),
                               .ranks = static_cast<int>(ranks_),
                               .rendezvous = launched_->rendezvous,
                               .group = {.deadline = deadline_},
                               .device = backend_ == Backend::cuda
                                             ? std::optional(device_of(launched_->rank))
                                             : std::nullopt});
  }
  return *group_;
}

std::int64_t RankTeam::cores_per_rank() {
  if (!launched_) return max64(1, usable_cores() / ranks_);
  return share_cores(meet().state().communicator()).share;
}

void RankTeam::agree_on(const Plan& plan) {
  if (!launched_) return;
  compare_identities(meet().state().communicator(), plan.config,
                     {.kernels = fmt::format("cpu {}", name_of(plan.machine.instruction_set)),
                      .arena_bytes = plan.arena.bytes});
}

std::vector<RankOutcome> RankTeam::run(const std::vector<std::int64_t>& payload_bytes,
                                       const std::function<std::string(const RankWork&)>& work) {
  if (launched_) return run_launched(payload_bytes, work);
  return backend_ == Backend::cuda ? run_threads(payload_bytes, work)
                                   : run_forked(payload_bytes, work);
}

std::vector<RankOutcome> RankTeam::run_threads(
    const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(const RankWork&)>& work) {
  std::vector<int> devices;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) devices.push_back(device_of(rank));
  std::vector<Group> groups = Group::devices(devices, {.deadline = deadline_});
  std::vector<RankOutcome> outcomes(groups.size());
  std::vector<std::exception_ptr> failures(groups.size());
  WorkProgress progress;
  const auto play = [&](std::size_t rank, const Group& group) {
    try {
      device::use_device(devices[rank]);
      outcomes[rank].payload.resize(static_cast<std::size_t>(payload_bytes[rank]));
      WorkProgress unwatched;
      outcomes[rank].report =
          work({group, outcomes[rank].payload, rank == 0 ? progress : unwatched});
    } catch (...) {
      failures[rank] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[rank])] { play(rank, group); });
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  throw_first_cause(failures);
  return outcomes;
}

std::vector<RankOutcome> RankTeam::run_forked(
    const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(const RankWork&)>& work) {
  const std::string rendezvous = fresh_rendezvous();
  // Ranks go through the stages of a work in step, so the first one's progress stands for all.
  SharedProgress progress;
  ProgressLine line;
  RankWatch watch{.deadline = deadline_};
  if (line.is_shown()) watch.tick = [&] { line.show(progress.of_first()); };
  return run_ranks(
      ranks_, payload_bytes,
      [&](std::int64_t rank, std::span<std::byte> payload) {
        const Group group = Group::processes({.rank = static_cast<int>(rank),
                                              .ranks = static_cast<int>(ranks_),
                                              .rendezvous = rendezvous,
                                              .group = {.deadline = deadline_}});
        WorkProgress unwatched;
        return work({group, payload, rank == 0 ? progress.of_first() : unwatched});
      },
      watch);
}

std::vector<RankOutcome> RankTeam::run_launched(
    const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(const RankWork&)>& work) {
  Communicator& communicator = meet().state().communicator();
  const auto memory = communicator.allocate(
      max64(1, *std::max_element(payload_bytes.begin(), payload_bytes.end())));
  const auto payload_at = [&](std::int64_t rank) {
    return std::span(memory->base(static_cast<int>(rank)),
                     static_cast<std::size_t>(payload_bytes[static_cast<std::size_t>(rank)]));
  };

  std::string report;
  std::string failure;
  std::exception_ptr own;
  WorkProgress unwatched;
  try {
    report = work({*group_, payload_at(launched_->rank), unwatched});
  } catch (const std::exception& error) {
    own = std::current_exception();
    failure = error.what();
  }
  try {
    agree_on_success(communicator, failure, "its part");
  } catch (const Error&) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  const std::vector<std::string> reports = gather_texts(communicator, report);
  if (!leads()) return {};
  std::vector<RankOutcome> outcomes;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    const auto payload = payload_at(rank);
    outcomes.push_back({reports[static_cast<std::size_t>(rank)], {payload.begin(), payload.end()}});
  }
  return outcomes;
}

}  // namespace megamoe::cli
