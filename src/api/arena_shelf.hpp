// The arenas that the layers of a rank share: one for each shape, as long as a layer has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "layout/shape.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

/// Arena has a shape().
template <class Arena>
class ArenaShelf {
 public:
  /// Collective: the arena of an earlier layer of the same shape if it still lives at every rank,
  /// else what `make`, which is collective, makes.
  template <class Make>
  std::shared_ptr<Arena> find_or_make(Communicator& communicator, const LayerShape& shape,
                                      const Make& make) {
    std::erase_if(arenas_, [](const Known& known) { return known.arena.expired(); });
    std::shared_ptr<Arena> mine;
    std::uint64_t number = 0;
    for (const Known& known : arenas_) {
      auto arena = known.arena.lock();
      if (!arena || arena->shape() != shape) continue;
      mine = std::move(arena);
      number = known.number;
    }
    // Layers end at each rank's own time, so an arena that lives here may be gone elsewhere.
    const auto bytes = std::as_bytes(std::span(&number, 1));
    bool shared = number != 0;
    for (const auto& other : communicator.all_gather(bytes, "sharing an arena")) {
      shared = shared && std::equal(bytes.begin(), bytes.end(), other.begin(), other.end());
    }
    if (shared) return mine;
    mine = make();
    arenas_.push_back({++made_, mine});
    return mine;
  }

 private:
  struct Known {
    std::uint64_t number;  ///< of the group's arenas, from 1: the same at all ranks
    std::weak_ptr<Arena> arena;
  };

  std::vector<Known> arenas_;
  std::uint64_t made_ = 0;
};

}  // namespace megamoe
