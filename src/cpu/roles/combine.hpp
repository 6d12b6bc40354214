// Combine: the sum of a token's routes.
#pragma once

#include "cpu/call.hpp"

namespace megamoe {

/// y of this member's share of the rank's tokens: valid slots in order, then the shared experts;
/// NaN for a token with an id beyond the experts. After barrier B.
void combine(const CpuCall& call, const TeamMember& me);

}  // namespace megamoe
