// In place of src/sm90/.
#include "no_cuda/absent.hpp"
#include "sm90/fused_layer.hpp"
#include "sm90/prepare.hpp"

namespace megamoe::sm90 {

struct FusedLayer::State {};

// No layer can be made, so nothing is there to be called.
FusedLayer::FusedLayer(const LayerConfig&, const LayerWeights&, const FusedOptions&) {
  fail_without_cuda();
}
FusedLayer::FusedLayer(const LayerConfig&, const FusedOptions&) {
  fail_without_cuda();
}
FusedLayer::~FusedLayer() = default;
FusedLayer::FusedLayer(FusedLayer&&) noexcept = default;
GpuBatch FusedLayer::batch() const {
  fail_without_cuda();
}
void FusedLayer::enqueue(const GpuCall&, void*) {
  fail_without_cuda();
}
void FusedLayer::forward(std::int64_t, BFloat16*, void*, const GpuOverrides&) {
  fail_without_cuda();
}
void FusedLayer::wait(void*) {
  fail_without_cuda();
}
void FusedLayer::check() {
  fail_without_cuda();
}
std::vector<std::int64_t> FusedLayer::rows_per_expert() const {
  fail_without_cuda();
}
void FusedLayer::refresh(const LayerWeights&) {
  fail_without_cuda();
}
std::vector<PackedPiece> FusedLayer::packed() const {
  fail_without_cuda();
}
void FusedLayer::load(const std::function<std::span<const std::byte>(const std::string&)>&) {
  fail_without_cuda();
}
GpuPlan FusedLayer::plan(std::int64_t, const GpuOverrides&) const {
  fail_without_cuda();
}
std::int64_t FusedLayer::rounded_weights() const {
  fail_without_cuda();
}
std::int64_t FusedLayer::expert_bytes() const {
  fail_without_cuda();
}

void launch_store_tokens(std::int32_t*, std::int64_t, void*) {
  fail_without_cuda();
}

}  // namespace megamoe::sm90
