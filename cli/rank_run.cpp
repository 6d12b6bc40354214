#include "cli/rank_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/rank_io.hpp"
#include "numerics/bf16.hpp"

namespace megamoe {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CallReport, tokens, routes, rows_per_expert, dispatch_ns,
                                   compute_ns, barrier_b_ns, combine_ns, total_ns, pull_busy_ns,
                                   gemm1_busy_ns, gemm2_busy_ns, pulled_bytes, pushed_bytes,
                                   weight_bytes, flops)

namespace cli {
namespace {

using Json = nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

/// One rank's part: y of every execution goes into the payload, reports of every call into the
/// text.
std::string play_rank(const LayerSource& source, const RunRequest& request, const RankWork& work) {
  const std::int64_t rank = work.group.rank();
  const auto begin = SteadyClock::now();
  work.progress.enter("packing weights", 0);
  const std::int64_t tokens = source.tokens(rank);
  RankIo io(source.config(), work.group.backend(), tokens);
  Layer layer(source.config(), source.weights(rank), work.group, request.layer);
  const auto pack_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin).count();

  const SyntheticInput input = source.input(rank);
  const Batch batch = io.load(layer, input, tokens);

  Json reports = Json::array();
  work.progress.enter("calls",
                      static_cast<std::int64_t>(request.executions.size()) * request.calls);
  const std::size_t y_bytes = work.payload.size() / request.executions.size();
  for (std::size_t e = 0; e < request.executions.size(); ++e) {
    Json calls = Json::array();
    for (std::int64_t call = 0; call < request.calls; ++call) {
      layer.forward(batch, io.y(tokens), request.executions[e]);
      calls.push_back(layer.report());
      work.progress.advance();
    }
    reports.push_back(std::move(calls));
    std::ranges::copy(std::as_bytes(io.read(tokens)), work.payload.data() + e * y_bytes);
  }
  return Json{{"reports", reports}, {"plan", layer.explain()}, {"pack_ns", pack_ns}}.dump();
}

/// The call that ended first over all ranks, as every rank saw it. calls[rank][call].
std::vector<CallReport> fastest_call(const std::vector<std::vector<CallReport>>& calls) {
  std::size_t best = 0;
  std::int64_t best_ns = INT64_MAX;
  for (std::size_t call = 0; call < calls.front().size(); ++call) {
    std::int64_t slowest = 0;
    for (const auto& rank : calls) slowest = std::max(slowest, rank[call].total_ns);
    if (slowest < best_ns) {
      best_ns = slowest;
      best = call;
    }
  }
  std::vector<CallReport> reports;
  for (const auto& rank : calls) reports.push_back(rank[best]);
  return reports;
}

}  // namespace

RunResult run_layer(const LayerSource& source, const RunRequest& request, RankTeam& team) {
  const std::size_t executions = request.executions.size();
  std::vector<std::int64_t> payload_bytes;
  for (std::int64_t rank = 0; rank < source.ranks(); ++rank) {
    payload_bytes.push_back(static_cast<std::int64_t>(executions * sizeof(BFloat16)) *
                            source.tokens(rank) * source.config().hidden);
  }
  const auto outcomes = team.run(
      payload_bytes, [&](const RankWork& work) { return play_rank(source, request, work); });
  if (!team.leads()) return {};

  RunResult result;
  std::vector<Json> documents;
  for (const RankOutcome& outcome : outcomes) {
    documents.push_back(Json::parse(outcome.report));
    result.plans.push_back(documents.back()["plan"]);
    result.pack_ns.push_back(documents.back()["pack_ns"]);
  }
  for (std::size_t e = 0; e < executions; ++e) {
    ExecutionResult execution;
    execution.execution = request.executions[e];
    execution.backend = team.backend();
    std::vector<std::vector<CallReport>> calls;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      calls.push_back(documents[rank]["reports"][e].get<std::vector<CallReport>>());
      const std::vector<std::byte>& payload = outcomes[rank].payload;
      const std::size_t bytes = payload.size() / executions;
      for (std::size_t at = e * bytes; at < (e + 1) * bytes; at += sizeof(BFloat16)) {
        BFloat16 value;
        std::memcpy(&value, payload.data() + at, sizeof value);
        execution.y.push_back(to_float(value));
      }
    }
    execution.reports = fastest_call(calls);
    result.executions.push_back(std::move(execution));
  }
  return result;
}

}  // namespace cli
}  // namespace megamoe
