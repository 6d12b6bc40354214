#include "cli/sweep.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace megamoe::cli {
namespace {

using Json = nlohmann::json;

/// What one rank says of one point.
Json measure_point(Layer& layer, const SyntheticInput& input, std::int64_t tokens,
                   Execution execution, const SweepRequest& request, WorkProgress& progress) {
  const LayerConfig& config = layer.config();
  Batch batch = layer.batch(tokens);
  std::copy_n(input.experts.begin(), batch.experts.size(), batch.experts.begin());
  std::copy_n(input.weights.begin(), batch.weights.size(), batch.weights.begin());
  const auto values = static_cast<std::size_t>(tokens * config.hidden);
  batch.x_bf16 = std::span(input.x).first(values);
  std::vector<BFloat16> y(values);

  std::vector<std::int64_t> times_ns;
  for (std::int64_t call = -request.warm_up; call < request.calls; ++call) {
    layer.forward(batch, y, execution);
    if (call >= 0) times_ns.push_back(layer.report().total_ns);
    progress.advance();
  }
  const CallReport& report = layer.report();
  std::int64_t rows = 0;
  std::int64_t hit = 0;
  for (std::int64_t count : report.rows_per_expert) {
    rows += count;
    hit += count > 0 ? 1 : 0;
  }
  return {{"times_ns", times_ns},
          {"rows", rows},
          {"experts_hit", hit},
          {"weight_bytes", report.weight_bytes},
          {"flops", report.flops}};
}

std::string sweep_rank(const LayerSource& source, const SweepRequest& request,
                       const RankWork& work) {
  const std::int64_t rank = work.group.rank();
  work.progress.enter("packing weights", 0);
  Layer layer(source.config(), source.weights(rank), work.group, request.layer);
  const SyntheticInput input = source.input(rank);
  const auto points = static_cast<std::int64_t>(request.tokens.size() * request.executions.size());
  work.progress.enter("bench", points * (request.warm_up + request.calls));
  Json document = Json::array();
  for (std::int64_t tokens : request.tokens) {
    for (Execution execution : request.executions) {
      document.push_back(measure_point(layer, input, tokens, execution, request, work.progress));
    }
  }
  return document.dump();
}

/// Joins what the ranks say of the point `at`.
void join(const std::vector<Json>& ranks, std::size_t at, SweepPoint& point) {
  std::vector<double> calls;
  for (const Json& rank : ranks) {
    const Json& mine = rank[at];
    const auto times = mine["times_ns"].get<std::vector<double>>();
    calls.resize(times.size(), 0);
    for (std::size_t c = 0; c < times.size(); ++c) calls[c] = std::max(calls[c], times[c]);
    point.rows += mine["rows"].get<double>();
    point.experts_hit += mine["experts_hit"].get<double>();
    point.weight_bytes += mine["weight_bytes"].get<double>();
    point.flops += mine["flops"].get<double>();
  }
  point.least_ns = *std::min_element(calls.begin(), calls.end());
  point.median_ns = median(std::move(calls));
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<SweepPoint> sweep(const LayerSource& source, const SweepRequest& request,
                              RankTeam& team) {
  return collect_points(source, request, team,
                        [&](const RankWork& work) { return sweep_rank(source, request, work); });
}

std::vector<SweepPoint> collect_points(const LayerSource& source, const SweepRequest& request,
                                       RankTeam& team,
                                       const std::function<std::string(const RankWork&)>& work) {
  const auto outcomes =
      team.run(std::vector<std::int64_t>(static_cast<std::size_t>(source.ranks()), 0), work);
  std::vector<Json> documents;
  for (const RankOutcome& outcome : outcomes) documents.push_back(Json::parse(outcome.report));
  std::vector<SweepPoint> points;
  if (!team.leads()) return points;
  for (std::int64_t tokens : request.tokens) {
    for (Execution execution : request.executions) {
      SweepPoint point{.tokens = tokens, .execution = execution};
      join(documents, points.size(), point);
      points.push_back(point);
    }
  }
  return points;
}

}  // namespace megamoe::cli
