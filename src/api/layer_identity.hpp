// What all ranks must agree on before they may address each other's memory.
#pragma once

#include <cstdint>
#include <string>

#include "megamoe/types.hpp"

#include "symmetric/communicator.hpp"

namespace megamoe {

/// What a plan adds to the configuration.
struct PlanIdentity {
  std::string kernels;  ///< backend and instruction set: what decides the bits
  std::int64_t arena_bytes = 0;
};

/// Collective. Throws Error{mismatch} on every rank, naming the first thing that differs, the ranks
/// and both values.
void compare_identities(Communicator& communicator, const LayerConfig& config,
                        const PlanIdentity& plan);

}  // namespace megamoe
