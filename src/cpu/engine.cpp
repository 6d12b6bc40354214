#include "cpu/engine.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "cpu/roles/combine.hpp"
#include "cpu/roles/dispatch.hpp"
#include "cpu/roles/gemm.hpp"
#include "numerics/bf16.hpp"
#include "routing/placement.hpp"

namespace megamoe {
namespace {

std::int64_t ns_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

Ticket ticket_of(TaskSet set) {
  switch (set) {
    case TaskSet::all:
      return Ticket::fused;
    case TaskSet::pull_and_gemm1:
      return Ticket::k1;
    case TaskSet::gemm2:
      return Ticket::k2;
  }
  return Ticket::fused;
}

void run_task(const CpuCall& call, const TeamMember& me, const Task& task) {
  WorkerTally& tally = me.scratch->tally;
  const Clock::time_point begin = Clock::now();
  switch (task.kind) {
    case TaskKind::pull:
      call.enter(EnginePhase::pull, me);
      pull(call, me, task);
      tally.pull_ns += ns_since(begin);
      break;
    case TaskKind::gemm1:
      call.enter(EnginePhase::gemm1, me);
      gemm1(call, me, task);
      tally.gemm1_ns += ns_since(begin);
      break;
    case TaskKind::gemm2:
      call.enter(EnginePhase::gemm2, me);
      gemm2(call, me, task);
      tally.gemm2_ns += ns_since(begin);
      break;
  }
}

/// Takes tickets until there are none.
void run_tasks(const CpuCall& call, const TeamMember& me, TaskSet set) {
  find_blocks(call, *me.scratch);
  Walk walk(me.scratch->first_block.data(), call.plan.shape.pool_experts(), call.plan.walk, set);
  TicketWord& word =
      call.arena.mine<TicketWord>(RegionId::ticket, call.bank)[static_cast<int>(ticket_of(set))];
  const std::atomic_ref ticket(word.next);
  for (;;) {
    const auto mine = static_cast<std::int64_t>(ticket.fetch_add(1, std::memory_order_relaxed));
    if (mine >= walk.size()) return;
    call.arena.waiter().check();
    run_task(call, me, walk.at(mine));
  }
}

/// Zeroes this member's share of the counters that the next call uses. Nobody else looks at them:
/// this rank's last call has ended, and peers write the next call's only after barrier B of this
/// one.
void clear_next_bank(const CpuCall& call, const TeamMember& me) {
  for (const Region& region : call.arena.layout().regions) {
    if (region.banks != 2) continue;
    const Share bytes = share_of(region.bank_bytes / 4, me.index, me.team_size());
    std::byte* bank = call.arena.mine<std::byte>(region.id, 1 - call.bank);
    std::memset(bank + 4 * bytes.begin, 0, static_cast<std::size_t>(4 * (bytes.end - bytes.begin)));
  }
}

/// Returns when all of the team have pushed.
void finish_pushes(const CpuCall& call, const TeamMember& me) {
  clear_next_bank(call, me);
  me.barrier->arrive_and_wait("before barrier B", call.arena.waiter());
}

void pass_barrier_b(const CpuCall& call, const TeamMember& me) {
  if (me.is_first()) {
    call.enter(EnginePhase::barrier_b, me);
    call.arena.barrier(BarrierId::b)
        .arrive_and_wait({call.layer, call.number}, call.arena.waiter(), call.arena.faults());
  }
}

/// An error of one worker becomes the group's fault, so that nobody waits for it.
template <class Work>
void guarded(const CpuCall& call, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    call.arena.faults().raise(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    call.arena.faults().raise(ErrorCode::internal, error.what());
    throw;
  }
}

class Stopwatch {
 public:
  std::int64_t lap_ns() { return ns_since(std::exchange(begin_, Clock::now())); }

 private:
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

Engine::Engine(const Plan& plan, std::shared_ptr<Arena> arena, std::shared_ptr<WorkerPool> pool,
               const PackedWeights& weights, std::uint32_t layer, EngineHook hook)
    : plan_(plan),
      arena_(std::move(arena)),
      pool_(std::move(pool)),
      weights_(weights),
      kernels_(vector_kernels(plan.machine.instruction_set)),
      layer_(layer),
      hook_(std::move(hook)),
      scratch_(static_cast<std::size_t>(plan.threads())) {
  for (WorkerScratch& scratch : scratch_) {
    size_gemm_scratch(plan_, kernels_, scratch);
    scratch.expert_slots.resize(static_cast<std::size_t>(plan_.shape.experts));
    scratch.first_block.resize(static_cast<std::size_t>(plan_.shape.pool_experts() + 1));
  }
}

std::int64_t Engine::scratch_bytes(const Plan& plan) {
  const std::int64_t counters = plan.shape.experts + plan.shape.pool_experts() + 1;
  const VectorKernels& kernels = vector_kernels(plan.machine.instruction_set);
  return plan.threads() * (gemm_scratch_bytes(plan, kernels) +
                           counters * static_cast<std::int64_t>(sizeof(std::int64_t)));
}

const CallReport& Engine::forward(const EngineInput& input) {
  const Arena::Call lease(*arena_);
  const CpuCall call{
      .plan = plan_,
      .arena = *arena_,
      .weights = weights_,
      .kernels = kernels_,
      .rule = make_activation_rule(plan_.config.activation, plan_.config.activation_limit),
      .hook = hook_,
      .layer = layer_,
      .number = lease.number(),
      .bank = lease.bank(),
      .tokens = input.tokens,
      .x_bf16 = input.x_bf16,
      .y = input.y};
  for (WorkerScratch& scratch : scratch_) scratch.tally = {};
  times_ = {};
  const Clock::time_point begin = Clock::now();
  try {
    switch (input.execution) {
      case Execution::fused:
        run_fused(call);
        break;
      case Execution::split:
        run_split(call);
        break;
      case Execution::staged:
        run_staged(call);
        break;
    }
  } catch (...) {
    std::fill_n(input.y, input.tokens * plan_.shape.hidden, kBf16NaN);
    throw;
  }
  times_.total_ns = ns_since(begin);
  report_ = summarise(call);
  report_bad_ids();
  return report_;
}

void Engine::run_fused(const CpuCall& call) {
  TeamBarrier team(plan_.workers);
  pool_->run(plan_.workers, [&](std::int64_t w) {
    guarded(call, [&] {
      const TeamMember me = member(w, w, team);
      call.enter(EnginePhase::begin, me);
      Stopwatch watch;
      dispatch_metadata(call, me);
      if (me.is_first()) times_.dispatch_ns = watch.lap_ns();
      run_tasks(call, me, TaskSet::all);
      finish_pushes(call, me);
      if (me.is_first()) times_.compute_ns = watch.lap_ns();
      pass_barrier_b(call, me);
      me.barrier->arrive_and_wait("after barrier B", call.arena.waiter());
      if (me.is_first()) times_.barrier_b_ns = watch.lap_ns();
      combine(call, me);
      if (me.is_first()) times_.combine_ns = watch.lap_ns();
    });
  });
}

void Engine::run_split(const CpuCall& call) {
  TeamBarrier k1_team(plan_.k1_workers);
  TeamBarrier k2_team(plan_.k2_workers);
  pool_->run(plan_.k1_workers + plan_.k2_workers, [&](std::int64_t w) {
    guarded(call, [&] {
      if (w < plan_.k1_workers) {
        run_k1(call, member(w, w, k1_team));
      } else {
        run_k2(call, member(w, w - plan_.k1_workers, k2_team));
      }
    });
  });
  run_k3(call);
}

void Engine::run_staged(const CpuCall& call) {
  TeamBarrier team(plan_.workers);
  pool_->run(plan_.workers,
             [&](std::int64_t w) { guarded(call, [&] { run_k1(call, member(w, w, team)); }); });
  pool_->run(plan_.workers,
             [&](std::int64_t w) { guarded(call, [&] { run_k2(call, member(w, w, team)); }); });
  run_k3(call);
}

void Engine::run_k1(const CpuCall& call, const TeamMember& me) {
  call.enter(EnginePhase::begin, me);
  Stopwatch watch;
  dispatch_metadata(call, me);
  if (me.is_first()) times_.dispatch_ns = watch.lap_ns();
  run_tasks(call, me, TaskSet::pull_and_gemm1);
}

void Engine::run_k2(const CpuCall& call, const TeamMember& me) {
  wait_for_receive_totals(call);
  run_tasks(call, me, TaskSet::gemm2);
  finish_pushes(call, me);
  Stopwatch watch;
  pass_barrier_b(call, me);
  if (me.is_first()) times_.barrier_b_ns = watch.lap_ns();
}

void Engine::run_k3(const CpuCall& call) {
  Stopwatch watch;
  TeamBarrier team(plan_.workers);
  pool_->run(plan_.workers,
             [&](std::int64_t w) { guarded(call, [&] { combine(call, member(w, w, team)); }); });
  times_.combine_ns = watch.lap_ns();
}

TeamMember Engine::member(std::int64_t worker, std::int64_t index, TeamBarrier& team) {
  return {index, &team, &scratch_[static_cast<std::size_t>(worker)], worker};
}

void Engine::report_bad_ids() const {
  const BadId* first = nullptr;
  for (const WorkerScratch& scratch : scratch_) {
    const std::optional<BadId>& bad = scratch.tally.bad_id;
    if (bad && (first == nullptr || bad->token < first->token)) first = &*bad;
  }
  if (first == nullptr) return;
  fail(ErrorCode::invalid_argument,
       "rank {} token {} slot {} names expert {}: 0 to {} or a negative id for no route is wanted; "
       "y of "
       "that token is NaN",
       arena_->rank(), first->token, first->slot, first->value, plan_.shape.experts - 1);
}

CallReport Engine::summarise(const CpuCall& call) const {
  CallReport report = times_;
  report.tokens = call.tokens;
  for (std::int64_t e = 0; e < plan_.shape.pool_experts(); ++e) {
    const std::int64_t rows = rows_of_expert(call, e);
    report.rows_per_expert.push_back(rows);
    if (rows > 0) report.weight_bytes += expert_strips(plan_.shape, e).bytes();
    report.flops += 6 * plan_.shape.hidden * plan_.shape.intermediate * rows;
  }
  for (const WorkerScratch& scratch : scratch_) {
    const WorkerTally& tally = scratch.tally;
    report.routes += tally.routes;
    report.pull_busy_ns += tally.pull_ns;
    report.gemm1_busy_ns += tally.gemm1_ns;
    report.gemm2_busy_ns += tally.gemm2_ns;
    report.pulled_bytes += tally.pulled_bytes;
    report.pushed_bytes += tally.pushed_bytes;
  }
  if (report.compute_ns == 0) {
    report.compute_ns =
        report.total_ns - report.dispatch_ns - report.barrier_b_ns - report.combine_ns;
  }
  return report;
}

}  // namespace megamoe
