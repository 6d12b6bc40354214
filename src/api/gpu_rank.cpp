#include "api/gpu_rank.hpp"

#include "base/check.hpp"
#include "layout/sm90_arena.hpp"

namespace megamoe {

std::vector<std::byte*> GpuRankArena::bases(int ranks) const {
  std::vector<std::byte*> bases;
  for (int rank = 0; rank < ranks; ++rank) bases.push_back(memory_->base(rank));
  return bases;
}

std::int64_t GpuRank::share_of_multiprocessors() const {
  const device::CurrentDevice current = use();
  return device::multiprocessors() / member_->sharers();
}

std::shared_ptr<GpuRankArena> GpuRank::arena(const LayerShape& shape) {
  auto arena = arenas_.find_or_make(*communicator_, shape, [&] {
    return std::make_shared<GpuRankArena>(
        shape, member_->allocate(sm90::make_gpu_arena_layout(shape).bytes));
  });
  if (!member_->takes_back()) kept_.push_back(arena);
  return arena;
}

device::StreamHandle GpuRank::stream() {
  if (!stream_) {
    const device::CurrentDevice current = use();
    stream_ = std::make_unique<device::Stream>();
  }
  return stream_->get();
}

void GpuRank::check_usable() const {
  if (!fault_) return;
  fail(fault_->code(), "the group was given up: {}", fault_->what());
}

void GpuRank::begin_call(const std::shared_ptr<CallEvents>& events, device::StreamHandle stream) {
  if (last_ && stream != last_stream_) last_->end.hold(stream);
  events->begin.record(stream);
}

void GpuRank::end_call(const std::shared_ptr<CallEvents>& events, device::StreamHandle stream) {
  events->end.record(stream);
  last_ = events;
  last_stream_ = stream;
}

void GpuRank::follow_default_stream() {
  if (!default_stream_) default_stream_ = std::make_unique<device::Event>();
  default_stream_->record(nullptr);
  default_stream_->hold(stream());
}

}  // namespace megamoe
