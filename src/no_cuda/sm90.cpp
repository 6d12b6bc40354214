// In place of src/sm90/.
#include "no_cuda/absent.hpp"
#include "sm90/device_layer.hpp"
#include "sm90/prepare.hpp"

namespace megamoe::sm90 {

struct RankWeights {};
struct DeviceLayer::State {};

// No layer can be made, so nothing is there to be called.
DeviceLayer::DeviceLayer(const LayerConfig&, const LayerWeights&, const DeviceLayerOptions&) {
  fail_without_cuda();
}
DeviceLayer::DeviceLayer(const LayerConfig&, const DeviceLayerOptions&) {
  fail_without_cuda();
}
DeviceLayer::~DeviceLayer() = default;
DeviceLayer::DeviceLayer(DeviceLayer&&) noexcept = default;
GpuBatch DeviceLayer::batch() const {
  fail_without_cuda();
}
void DeviceLayer::enqueue(const GpuCall&, void*) {
  fail_without_cuda();
}
void DeviceLayer::forward(std::int64_t, BFloat16*, void*, const GpuOverrides&) {
  fail_without_cuda();
}
void DeviceLayer::wait(void*) {
  fail_without_cuda();
}
void DeviceLayer::check() {
  fail_without_cuda();
}
std::vector<std::int64_t> DeviceLayer::rows_per_expert() const {
  fail_without_cuda();
}
void DeviceLayer::refresh(const LayerWeights&) {
  fail_without_cuda();
}
std::shared_ptr<RankWeights> DeviceLayer::weights() const {
  fail_without_cuda();
}
std::vector<PackedPiece> DeviceLayer::packed() const {
  fail_without_cuda();
}
void DeviceLayer::load(const std::function<std::span<const std::byte>(const std::string&)>&) {
  fail_without_cuda();
}
GpuPlan DeviceLayer::plan(std::int64_t, const GpuOverrides&) const {
  fail_without_cuda();
}
std::int64_t DeviceLayer::rounded_weights() const {
  fail_without_cuda();
}
std::int64_t DeviceLayer::expert_bytes() const {
  fail_without_cuda();
}

void launch_store_tokens(std::int32_t*, std::int64_t, void*) {
  fail_without_cuda();
}

}  // namespace megamoe::sm90
