// The layer over rank processes: what `run` and `verify` share.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "megamoe/layer.hpp"

#include "cli/layer_source.hpp"

namespace megamoe::cli {

struct RunRequest {
  std::vector<Execution> executions{Execution::fused};  ///< one after another, on the same layer
  LayerOptions layer;
  std::int64_t calls = 1;  ///< per execution; the fastest is reported
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

/// One execution over all ranks.
struct ExecutionResult {
  Execution execution = Execution::fused;
  std::vector<float> y;             ///< [total tokens, hidden], ranks in order
  std::vector<CallReport> reports;  ///< by rank: the call that was fastest over all ranks
};

struct RunResult {
  std::vector<ExecutionResult> executions;
  std::vector<std::string> plans;     ///< Layer::explain by rank
  std::vector<std::int64_t> pack_ns;  ///< by rank: making the layer
};

/// Forks source.ranks() processes, makes the layer in them and calls it. Throws the first cause of
/// a failure.
RunResult run_layer(const LayerSource& source, const RunRequest& request);

}  // namespace megamoe::cli
