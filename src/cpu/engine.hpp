// The engine of one rank: a layer's calls, as fused, split or staged lists of the same roles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/call.hpp"
#include "cpu/worker_pool.hpp"

namespace megamoe {

/// What a call is given.
struct EngineInput {
  std::int64_t tokens = 0;
  const BFloat16* x_bf16 = nullptr;  ///< null: the arena's x and scales are filled already
  BFloat16* y = nullptr;             ///< [tokens, hidden]
  Execution execution = Execution::fused;
};

class Engine {
 public:
  /// pool.threads() >= plan.threads(). `layer`: the ordinal that barrier A compares.
  Engine(const Plan& plan, std::shared_ptr<Arena> arena, std::shared_ptr<WorkerPool> pool,
         const PackedWeights& weights, std::uint32_t layer, EngineHook hook = {});

  /// What the workers of an engine with this plan take of private memory.
  static std::int64_t scratch_bytes(const Plan& plan);

  /// One call; see Layer::forward for what is thrown when, and what y then holds.
  const CallReport& forward(const EngineInput& input);
  /// The last call that ran to its end, one that named experts beyond the layer's included.
  const CallReport& report() const { return report_; }

 private:
  void run_fused(const CpuCall& call);
  void run_split(const CpuCall& call);
  void run_staged(const CpuCall& call);
  void run_k1(const CpuCall& call, const TeamMember& me);
  void run_k2(const CpuCall& call, const TeamMember& me);
  void run_k3(const CpuCall& call);
  TeamMember member(std::int64_t worker, std::int64_t index, TeamBarrier& team);
  CallReport summarise(const CpuCall& call) const;
  void report_bad_ids() const;

  Plan plan_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<WorkerPool> pool_;
  const PackedWeights& weights_;
  const VectorKernels& kernels_;
  std::uint32_t layer_;
  EngineHook hook_;
  std::vector<WorkerScratch> scratch_;
  CallReport report_;
  CallReport times_;  // the phases of the call that runs, written by the first worker of a team
};

}  // namespace megamoe
