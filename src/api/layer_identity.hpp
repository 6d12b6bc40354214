// What all ranks must agree on before they may address each other's memory.
#pragma once

#include "plan/plan.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

/// Collective. Throws Error{mismatch} on every rank, naming the first thing that differs, the ranks
/// and both values.
void compare_identities(Communicator& communicator, const Plan& plan);

}  // namespace megamoe
