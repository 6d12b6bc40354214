#include "cpu/roles/dispatch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.hpp"
#include "cpu/convert.hpp"
#include "routing/count_word.hpp"
#include "routing/placement.hpp"
#include "routing/round_robin.hpp"

namespace megamoe {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

void convert_tokens(const CpuCall& call, const Share& tokens) {
  if (call.x_bf16 == nullptr) return;
  const LayerShape& shape = call.plan.shape;
  const std::int64_t row_bytes = x_row_bytes(shape.recipe, shape.hidden);
  const std::int64_t scale_bytes = x_scale_row_bytes(shape.recipe, shape.hidden);
  std::byte* x = call.arena.mine<std::byte>(RegionId::x);
  std::byte* scales = call.arena.mine<std::byte>(RegionId::x_scales);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    convert_x_row(shape.recipe, shape.hidden, call.x_bf16 + t * shape.hidden, x + t * row_bytes,
                  scales + t * scale_bytes);
  }
}

/// Counts the routes of some tokens per expert, then reserves that many places in each expert's
/// list: one addition per expert adds the count and returns the private first place.
void count_routes(const CpuCall& call, const Share& tokens, WorkerScratch& scratch) {
  const LayerShape& shape = call.plan.shape;
  std::vector<std::int64_t>& places = scratch.expert_slots;
  std::fill(places.begin(), places.end(), 0);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const SlotList list = call.slots(call.arena.rank(), t);
    for (std::int64_t s = 0; s < shape.top_k; ++s) {
      if (!is_route(list, s)) continue;
      ++places[static_cast<std::size_t>(list.ids[s])];
      ++scratch.tally.routes;
    }
    const std::int64_t bad = first_bad_slot(list);
    if (bad >= 0 && !scratch.tally.bad_id) scratch.tally.bad_id = BadId{t, bad, list.ids[bad]};
  }
  std::uint64_t* send_count = call.arena.mine<std::uint64_t>(RegionId::send_count, call.bank);
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    std::int64_t& place = places[static_cast<std::size_t>(e)];
    // Relaxed: the team barrier before publication orders it.
    place =
        count_in(std::atomic_ref(send_count[e]).fetch_add(count_word(place), memory_order_relaxed));
  }
}

/// Writes token * K + slot of every route into the list [local expert][source rank][place] of the
/// expert's owner.
void scatter_routes(const CpuCall& call, const Share& tokens, WorkerScratch& scratch) {
  const LayerShape& shape = call.plan.shape;
  const int rank = call.arena.rank();
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const SlotList list = call.slots(rank, t);
    for (std::int64_t s = 0; s < shape.top_k; ++s) {
      if (!is_route(list, s)) continue;
      const ExpertHome home = home_of(shape, list.ids[s]);
      std::uint32_t* entries =
          call.arena.at<std::uint32_t>(RegionId::source_list, static_cast<int>(home.rank)) +
          (home.local_expert * shape.ranks + rank) * shape.max_tokens;
      entries[scratch.expert_slots[static_cast<std::size_t>(list.ids[s])]++] =
          static_cast<std::uint32_t>(t * shape.top_k + s);
    }
  }
}

/// Tells every owner how many routes this rank sends to each of its experts. By one worker, after
/// the team barrier.
void publish_counts(const CpuCall& call, std::int64_t workers) {
  const LayerShape& shape = call.plan.shape;
  const std::int64_t rank = call.arena.rank();
  std::uint64_t* send_count = call.arena.mine<std::uint64_t>(RegionId::send_count, call.bank);
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const std::uint64_t word = std::atomic_ref(send_count[e]).load(memory_order_relaxed);
    if (contributors(word) != workers) {
      fail(ErrorCode::internal, "send count of expert {} has {} contributors of {}", e,
           contributors(word), workers);
    }
    const ExpertHome home = home_of(shape, e);
    const int owner = static_cast<int>(home.rank);
    call.arena.at<std::uint64_t>(RegionId::receive_count,
                                 owner)[rank * shape.experts_per_rank() + home.local_expert] =
        static_cast<std::uint64_t>(count_in(word));
    std::uint64_t& total =
        call.arena.at<std::uint64_t>(RegionId::receive_total, owner, call.bank)[home.local_expert];
    std::atomic_ref(total).fetch_add(count_word(count_in(word)), memory_order_release);
  }
}

/// One pulled row: who it is, and with what weight.
struct PulledRow {
  RowSource source;
  float weight;
};

PulledRow identify(const CpuCall& call, std::int64_t expert, std::int64_t row_of_expert) {
  const LayerShape& shape = call.plan.shape;
  if (expert >= shape.experts_per_rank()) {
    const std::int64_t slot = shape.top_k + expert - shape.experts_per_rank();
    return {{call.arena.rank(), static_cast<std::int32_t>(row_of_expert),
             static_cast<std::int32_t>(slot)},
            1.0f};
  }
  const std::uint64_t* counts = call.arena.mine<std::uint64_t>(RegionId::receive_count);
  const auto count = [&](std::int64_t r) {
    return static_cast<std::int64_t>(counts[r * shape.experts_per_rank() + expert]);
  };
  const Turn turn = turn_of_row(count, shape.ranks, row_of_expert);
  const std::uint32_t entry = call.arena.mine<std::uint32_t>(
      RegionId::source_list)[(expert * shape.ranks + turn.rank) * shape.max_tokens + turn.position];
  const int rank = static_cast<int>(turn.rank);
  const std::int64_t token = entry / shape.top_k;
  const std::int64_t slot = entry % shape.top_k;
  return {{rank, static_cast<std::int32_t>(token), static_cast<std::int32_t>(slot)},
          route_weight(call.slots(rank, token), slot)};
}

}  // namespace

void dispatch_metadata(const CpuCall& call, const TeamMember& me) {
  const Share tokens = share_of(call.tokens, me.index, me.team_size());
  convert_tokens(call, tokens);
  call.enter(EnginePhase::count, me);
  count_routes(call, tokens, *me.scratch);
  call.enter(EnginePhase::scatter, me);
  scatter_routes(call, tokens, *me.scratch);
  me.barrier->arrive_and_wait("scatter", call.arena.waiter());
  if (me.is_first()) {
    publish_counts(call, me.team_size());
    call.enter(EnginePhase::barrier_a, me);
    call.arena.barrier(BarrierId::a)
        .arrive_and_wait({call.layer, call.number}, call.arena.waiter(), call.arena.faults());
  }
  me.barrier->arrive_and_wait("after barrier A", call.arena.waiter());
}

void wait_for_receive_totals(const CpuCall& call) {
  const LayerShape& shape = call.plan.shape;
  // A rank without experts of its own has no totals to wait for, and waits for its own workers have
  // deadlines that must not begin before this.
  call.arena.waiter().until(
      {"GEMM 2", "barrier A"},
      [&] {
        const bool passed = call.arena.barrier(BarrierId::a).all_arrived(call.number);
        return Observation{passed, passed ? 1u : 0u, 1};
      },
      Waiter::guarded());
  const std::uint64_t* totals = call.arena.mine<std::uint64_t>(RegionId::receive_total, call.bank);
  for (std::int64_t e = 0; e < local_experts(shape, call.arena.rank()); ++e) {
    call.arena.waiter().until(
        {"GEMM 2", "receive total", e},
        [&] {
          // atomic_ref wants a mutable object; nothing is written.
          auto& word = const_cast<std::uint64_t&>(totals[e]);
          const std::int64_t seen = contributors(std::atomic_ref(word).load(memory_order_acquire));
          return Observation{seen == shape.ranks, static_cast<std::uint64_t>(seen),
                             static_cast<std::uint64_t>(shape.ranks)};
        },
        Waiter::guarded());
  }
}

std::int64_t rows_of_expert(const CpuCall& call, std::int64_t pool_expert) {
  if (pool_expert >= call.plan.shape.experts_per_rank()) return call.tokens;
  std::uint64_t& total =
      call.arena.mine<std::uint64_t>(RegionId::receive_total, call.bank)[pool_expert];
  return count_in(std::atomic_ref(total).load(memory_order_acquire));
}

void find_blocks(const CpuCall& call, WorkerScratch& scratch) {
  fill_first_blocks([&](std::int64_t e) { return rows_of_expert(call, e); },
                    call.plan.shape.pool_experts(), call.plan.block_rows,
                    scratch.first_block.data());
}

BlockRows rows_of_block(const CpuCall& call, const WorkerScratch& scratch, const Task& task) {
  const std::int64_t block_rows = call.plan.block_rows;
  const std::int64_t first =
      (task.block - scratch.first_block[static_cast<std::size_t>(task.expert)]) * block_rows;
  return {task.block * block_rows, min64(block_rows, rows_of_expert(call, task.expert) - first),
          first};
}

void pull(const CpuCall& call, const TeamMember& me, const Task& task) {
  const LayerShape& shape = call.plan.shape;
  const BlockRows block = rows_of_block(call, *me.scratch, task);
  const std::int64_t begin = task.part * call.plan.pull_rows;
  const std::int64_t end = min64(begin + call.plan.pull_rows, block.rows);
  if (begin >= end) return;  // the block's valid rows end before this part

  const std::int64_t row_bytes = x_row_bytes(shape.recipe, shape.hidden);
  const std::int64_t scale_bytes = x_scale_row_bytes(shape.recipe, shape.hidden);
  std::byte* pool = call.arena.mine<std::byte>(RegionId::gemm1_input);
  std::byte* pool_scales = call.arena.mine<std::byte>(RegionId::gemm1_input_scales);
  RowSource* sources = call.arena.mine<RowSource>(RegionId::row_source);
  float* weights = call.arena.mine<float>(RegionId::row_weight);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t row = block.first_row + r;
    const PulledRow pulled = identify(call, task.expert, block.first_of_expert + r);
    const std::int64_t token = pulled.source.token;
    std::memcpy(pool + row * row_bytes,
                call.arena.at<std::byte>(RegionId::x, pulled.source.rank) + token * row_bytes,
                static_cast<std::size_t>(row_bytes));
    std::memcpy(
        pool_scales + row * scale_bytes,
        call.arena.at<std::byte>(RegionId::x_scales, pulled.source.rank) + token * scale_bytes,
        static_cast<std::size_t>(scale_bytes));
    sources[row] = pulled.source;
    weights[row] = pulled.weight;
  }
  me.scratch->tally.pulled_bytes += (end - begin) * (row_bytes + scale_bytes);
  std::uint32_t* arrival = call.arena.mine<std::uint32_t>(RegionId::block_arrival, call.bank);
  std::atomic_ref(arrival[task.block])
      .fetch_add(static_cast<std::uint32_t>(end - begin), memory_order_release);
}

}  // namespace megamoe
