#include "device/cuda.hpp"
#include "sm90/device_layer.hpp"

namespace megamoe::sm90 {

struct GpuArena::State {
  GpuArenaLayout layout;
  device::Memory memory;
};

GpuArena::GpuArena(const LayerConfig& config, std::int64_t ranks)
    : state_(std::make_unique<State>()) {
  state_->layout = make_gpu_arena_layout(make_shape(config, ranks));
  state_->memory = device::Memory(state_->layout.bytes, "the arena");
  for (const GpuRegionSpan& region : state_->layout.regions) {
    if (region.kind != RegionKind::control) continue;
    device::check(
        cudaMemset(base() + region.offset_bytes, 0, static_cast<std::size_t>(region.bytes())),
        "clearing control words");
  }
  device::check(cudaDeviceSynchronize(), "clearing control words");
}
GpuArena::~GpuArena() = default;
GpuArena::GpuArena(GpuArena&&) noexcept = default;

std::byte* GpuArena::base() const {
  return state_->memory.get();
}
const GpuArenaLayout& GpuArena::layout() const {
  return state_->layout;
}

void GpuArena::poison(int byte) {
  for (const GpuRegionSpan& region : state_->layout.regions) {
    if (region.kind != RegionKind::data) continue;
    device::check(
        cudaMemset(base() + region.offset_bytes, byte, static_cast<std::size_t>(region.bytes())),
        "poisoning data");
  }
  device::check(cudaDeviceSynchronize(), "poisoning data");
}

}  // namespace megamoe::sm90
