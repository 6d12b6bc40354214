// The plan that a layer will have, known before there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megamoe/layer.hpp"

#include "plan/plan.hpp"
#include "symmetric/communicator.hpp"
#include "topology/placement.hpp"

namespace megamoe {

/// Processors that this process may use.
std::int64_t usable_cores();

/// Collective: where this rank of a group on one host runs.
RankPlace share_cores(Communicator& communicator);

/// Where `ranks` ranks run that have the mask of this thread, as ranks that it forks.
std::vector<RankPlace> places_of_forked(std::int64_t ranks);

/// The plan of a layer made with these options in a group of `ranks` ranks, all on this host.
/// cores: of this rank; absent: an equal part of those that this process may use.
/// Throws what the constructor of Layer throws for sizes, options and instruction sets.
Plan plan_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options,
                std::optional<std::int64_t> cores = {});

}  // namespace megamoe
