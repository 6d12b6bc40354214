// One call of the layer at one rank: what its workers share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "megamoe/layer.hpp"

#include "cpu/kernels.hpp"
#include "cpu/packed_weights.hpp"
#include "cpu/team_barrier.hpp"
#include "plan/plan.hpp"
#include "routing/slots.hpp"
#include "symmetric/arena.hpp"

namespace megamoe {

/// Where a call has got to; for hooks.
enum class EnginePhase { begin, count, scatter, barrier_a, pull, gemm1, gemm2, barrier_b, combine };

/// Called by worker `worker` of this rank when it enters a phase (for tasks: before each). Tests
/// delay and kill with it.
using EngineHook = std::function<void(EnginePhase phase, std::int64_t worker)>;

/// An id beyond the experts.
struct BadId {
  std::int64_t token;
  std::int64_t slot;
  std::int64_t value;
};

/// Busy time and bytes of one worker in one call.
struct WorkerTally {
  std::int64_t pull_ns = 0;
  std::int64_t gemm1_ns = 0;
  std::int64_t gemm2_ns = 0;
  std::int64_t pulled_bytes = 0;
  std::int64_t pushed_bytes = 0;
  std::int64_t routes = 0;
  std::optional<BadId> bad_id;  ///< the first of this worker's tokens
};

/// A worker's own memory, kept between calls.
struct WorkerScratch {
  PageMemory panel;        ///< f32, see VectorKernels::load_panel
  PageMemory sums;         ///< f32 [strips][padded rows][32]
  PageMemory activations;  ///< f32 [rows][128]
  std::vector<std::int64_t>
      expert_slots;  ///< per expert: count, then next private position in the owner's list
  std::vector<std::int64_t> first_block;  ///< per pool expert, and one behind
  WorkerTally tally;
};

/// The worker's place in its team.
struct TeamMember {
  std::int64_t index;  ///< in the team
  TeamBarrier* barrier;
  WorkerScratch* scratch;
  std::int64_t worker;  ///< in the rank

  std::int64_t team_size() const { return barrier->workers(); }
  bool is_first() const { return index == 0; }
};

using Clock = std::chrono::steady_clock;

struct CpuCall {
  const Plan& plan;
  Arena& arena;
  const PackedWeights& weights;
  const VectorKernels& kernels;
  ActivationRule rule;
  const EngineHook& hook;
  std::uint32_t layer;   ///< ordinal in the group
  std::uint32_t number;  ///< of the call
  std::int64_t bank;
  std::int64_t tokens;
  const BFloat16* x_bf16;  ///< null: the arena's x is filled already
  BFloat16* y;

  void enter(EnginePhase phase, const TeamMember& me) const {
    if (hook) hook(phase, me.worker);
  }

  /// A token's list at any rank.
  SlotList slots(int rank, std::int64_t token) const {
    const std::int64_t k = plan.shape.top_k;
    return {arena.at<std::int64_t>(RegionId::expert_ids, rank) + token * k,
            arena.at<float>(RegionId::expert_weights, rank) + token * k, k, plan.shape.experts};
  }
};

}  // namespace megamoe
