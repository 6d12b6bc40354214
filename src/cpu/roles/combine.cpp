#include "cpu/roles/combine.hpp"

#include <algorithm>

#include "numerics/bf16.hpp"

namespace megamoe {

void combine(const CpuCall& call, const TeamMember& me) {
  const LayerShape& shape = call.plan.shape;
  const BFloat16* region = call.arena.mine<BFloat16>(RegionId::combine);
  const Share tokens = share_of(call.tokens, me.index, me.team_size());
  call.enter(EnginePhase::combine, me);
  std::vector<const BFloat16*> slots;
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    BFloat16* y = call.y + t * shape.hidden;
    const SlotList list = call.slots(call.arena.rank(), t);
    if (first_bad_slot(list) >= 0) {
      std::fill_n(y, shape.hidden, kBf16NaN);
      continue;
    }
    slots.clear();
    for (std::int64_t s = 0; s < shape.combine_slots(); ++s) {
      if (s >= shape.top_k || is_route(list, s)) {
        slots.push_back(region + (s * shape.max_tokens + t) * shape.hidden);
      }
    }
    call.kernels.combine({.slots = slots.data(),
                          .slot_count = static_cast<std::int64_t>(slots.size()),
                          .columns = shape.hidden,
                          .y = y});
  }
}

}  // namespace megamoe
