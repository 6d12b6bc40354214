// What a layer will take of this host, known before it is made.
#pragma once

#include <cstdint>

#include "megamoe/layer.hpp"

#include "cli/layer_source.hpp"
#include "cli/rank_team.hpp"
#include "plan/plan.hpp"
#include "symmetric/host_memory.hpp"

namespace megamoe::cli {

/// Bytes of one rank.
struct Footprint {
  std::int64_t arena_bytes = 0;    ///< address space; pages come as they are touched
  std::int64_t weight_bytes = 0;   ///< packed experts and biases, touched by packing
  std::int64_t expert_bytes = 0;   ///< of those, one expert's matrices
  std::int64_t scratch_bytes = 0;  ///< of all workers
  std::int64_t source_bytes = 0;   ///< weights made from a seed, until they are packed; a
                                   ///< checkpoint's are mapped, and the system takes them back

  std::int64_t bytes() const { return arena_bytes + weight_bytes + scratch_bytes + source_bytes; }
};

Footprint footprint_of(const LayerSource& source, const Plan& plan);

/// Pages of a region that one call with `tokens` tokens at every rank touches, if routes spread
/// evenly over the experts.
std::int64_t touched_bytes(const Region& region, const Plan& plan, std::int64_t tokens);

/// Throws Error{out_of_memory} with bytes needed and available, before anything is allocated, when
/// the host cannot hold all ranks and a little more.
void check_footprint(const Footprint& footprint, std::int64_t ranks, const HostMemory& host);

/// The same for what a command is about to make at the ranks of a team, who agree on it first.
void check_memory(const LayerSource& source, const LayerOptions& options, RankTeam& team);

}  // namespace megamoe::cli
