// The plan that a layer will have, known before there is one.
#pragma once

#include <cstdint>

#include "megamoe/layer.hpp"

#include "plan/plan.hpp"

namespace megamoe {

/// Cores that this process may use.
std::int64_t usable_cores();

/// The plan of a layer made with these options in a group of `ranks` ranks, all on this host.
/// Throws what the constructor of Layer throws for sizes, options and instruction sets.
Plan plan_layer(const LayerConfig& config, std::int64_t ranks, const LayerOptions& options);

}  // namespace megamoe
