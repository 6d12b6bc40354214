// One layer, called with many numbers of tokens by every execution: the measurement of `bench`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megamoe/layer.hpp"

#include "cli/layer_source.hpp"
#include "cli/rank_team.hpp"

namespace megamoe::cli {

struct SweepRequest {
  std::vector<std::int64_t> tokens;  ///< per rank, each at most the source's
  std::vector<Execution> executions{Execution::fused};
  LayerOptions layer;
  std::int64_t warm_up = 2;  ///< calls before each point
  std::int64_t calls = 9;    ///< calls of each point
};

/// One number of tokens by one execution, over all ranks.
struct SweepPoint {
  std::int64_t tokens = 0;  ///< per rank
  Execution execution = Execution::fused;
  double median_ns = 0;  ///< of the calls; a call lasts as long as its slowest rank
  double least_ns = 0;
  double rows = 0;  ///< over all experts and ranks
  double experts_hit = 0;
  double weight_bytes = 0;
  double flops = 0;
};

/// Runs `work` at every rank and joins what the ranks say of each point, which is a JSON array of
/// {times_ns, rows, experts_hit, weight_bytes, flops} in the order of tokens, then executions. The
/// points are at the leader.
std::vector<SweepPoint> collect_points(const LayerSource& source, const SweepRequest& request,
                                       RankTeam& team,
                                       const std::function<std::string(const RankWork&)>& work);

/// Makes the layer once at each rank of a team on CPUs and calls it. The points are at the leader.
std::vector<SweepPoint> sweep(const LayerSource& source, const SweepRequest& request,
                              RankTeam& team);

/// The middle value; the mean of the two middle ones of an even number. Not of nothing.
double median(std::vector<double> values);

}  // namespace megamoe::cli
