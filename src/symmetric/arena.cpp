#include "symmetric/arena.hpp"

#include <new>
#include <utility>

#include "base/check.hpp"

namespace megamoe {
namespace {

static_assert(sizeof(FaultRegion) == kFaultRegionBytes);

GroupBarrier make_barrier(BarrierId id, const char* name, const Arena& arena) {
  std::vector<std::uint64_t*> words;
  for (int rank = 0; rank < arena.ranks(); ++rank) {
    words.push_back(arena.at<std::uint64_t>(RegionId::barrier, rank) +
                    static_cast<int>(id) * arena.ranks());
  }
  return GroupBarrier(name, arena.rank(), std::move(words));
}

}  // namespace

Arena::Arena(std::shared_ptr<Communicator> communicator, const LayerShape& shape,
             std::shared_ptr<Arena> first)
    : communicator_(std::move(communicator)),
      first_(std::move(first)),
      shape_(shape),
      layout_(make_arena_layout(shape)),
      memory_(communicator_->allocate(layout_.bytes)) {
  if (first_) return;
  std::vector<FaultRegion*> faults;
  for (int rank = 0; rank < ranks(); ++rank) {
    faults.push_back(at<FaultRegion>(RegionId::fault, rank));
  }
  faults_ = std::make_unique<FaultBoard>(rank(), std::move(faults));
  waiter_ = std::make_unique<Waiter>(*communicator_, *faults_);
  barriers_.push_back(make_barrier(BarrierId::a, "barrier A", *this));
  barriers_.push_back(make_barrier(BarrierId::b, "barrier B", *this));
}

Arena::Call::Call(Arena& arena) : control_(arena.control()) {
  arena.waiter().check();
  if (control_.in_call_.exchange(true, std::memory_order_acquire)) {
    fail(ErrorCode::invalid_argument,
         "rank {} is already running a call of this group: call the layers of a group one after "
         "another",
         arena.rank());
  }
  number_ = ++control_.mine<CallState>(RegionId::call_state)->group_call;
  bank_ = ++arena.mine<CallState>(RegionId::call_state)->call % 2;
}

Arena::Call::~Call() {
  control_.in_call_.store(false, std::memory_order_release);
}

}  // namespace megamoe
