// The layer over rank processes: what `run` and `verify` share.
#pragma once

#include <cstdint>
#include <vector>

#include "megamoe/layer.hpp"

#include "cli/layer_source.hpp"
#include "cli/rank_team.hpp"

namespace megamoe::cli {

struct RunRequest {
  std::vector<Execution> executions{Execution::fused};  ///< one after another, on the same layer
  LayerOptions layer;
  std::int64_t calls = 1;  ///< per execution; the fastest is reported
};

/// One execution over all ranks.
struct ExecutionResult {
  Execution execution = Execution::fused;
  Backend backend = Backend::cpu;
  std::vector<float> y;             ///< [total tokens, hidden], ranks in order
  std::vector<CallReport> reports;  ///< by rank: the call that was fastest over all ranks
};

struct RunResult {
  std::vector<ExecutionResult> executions;
  std::vector<std::string> plans;     ///< Layer::explain by rank
  std::vector<std::int64_t> pack_ns;  ///< by rank: making the layer
};

/// Makes the layer at the source.ranks() ranks of the team and calls it. The result is at the
/// leader; others get an empty one. Throws the first cause of a failure.
RunResult run_layer(const LayerSource& source, const RunRequest& request, RankTeam& team);

}  // namespace megamoe::cli
