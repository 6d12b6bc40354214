// Which slots of a token's list are routes, and with what weight.
#pragma once

#include <cstdint>

namespace megamoe {

/// One token's list: `top_k` ids and weights as the caller wrote them.
struct SlotList {
  const std::int64_t* ids;
  const float* weights;
  std::int64_t top_k;
  std::int64_t experts;
};

/// A negative id is no route; so is one beyond the experts, which the caller reports (see
/// first_bad_slot), and every slot whose expert stands in an earlier slot.
constexpr bool is_route(const SlotList& list, std::int64_t slot) {
  const std::int64_t id = list.ids[slot];
  if (id < 0 || id >= list.experts) return false;
  for (std::int64_t earlier = 0; earlier < slot; ++earlier) {
    if (list.ids[earlier] == id) return false;
  }
  return true;
}

/// The weight of a route: the f32 sum over all slots that name its expert, in slot order.
constexpr float route_weight(const SlotList& list, std::int64_t slot) {
  float sum = list.weights[slot];
  for (std::int64_t later = slot + 1; later < list.top_k; ++later) {
    if (list.ids[later] == list.ids[slot]) sum += list.weights[later];
  }
  return sum;
}

/// The first slot whose id is beyond the experts, or -1.
constexpr std::int64_t first_bad_slot(const SlotList& list) {
  for (std::int64_t slot = 0; slot < list.top_k; ++slot) {
    if (list.ids[slot] >= list.experts) return slot;
  }
  return -1;
}

}  // namespace megamoe
