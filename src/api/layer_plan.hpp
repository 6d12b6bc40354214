// The plan that a layer will have, known before there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "megamoe/layer.hpp"

#include "plan/plan.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

/// Cores that this process may use.
std::int64_t usable_cores();

/// The numbers of the cores that a rank may use.
using CoreSet = std::vector<int>;

/// The cores of `rank` when each core serves the ranks that may use it equally, at least 1. Ranks
/// that a launcher bound to cores of their own have all of those; ranks that may use the same cores
/// have equal parts of them.
std::int64_t part_of_cores(std::span<const CoreSet> sets, std::size_t rank);

/// Collective: the same for this rank of a group on one host.
std::int64_t share_cores(Communicator& communicator);

/// The plan of a layer made with these options in a group of `ranks` ranks, all on this host.
/// cores: of this rank; absent: an equal part of those that this process may use.
/// Throws what the constructor of Layer throws for sizes, options and instruction sets.
Plan plan_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options,
                std::optional<std::int64_t> cores = {});

}  // namespace megamoe
