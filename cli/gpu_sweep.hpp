// The measurement of `bench` on CUDA devices.
#pragma once

#include <vector>

#include "cli/sweep.hpp"

namespace megamoe::cli {

/// As sweep(), for a team on CUDA devices: times are between events around a call on its stream, a
/// call lasting as long as at its slowest rank. x is in FP8. Three inputs take turns; calls follow
/// each other without a pause.
std::vector<SweepPoint> gpu_sweep(const LayerSource& source, const SweepRequest& request,
                                  RankTeam& team);

}  // namespace megamoe::cli
