// All ranks of a fused layer in one process: on one GPU, each with its share of the
// multiprocessors, or on a GPU each.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "device/cuda.hpp"
#include "layer_data.hpp"
#include "numerics/bf16.hpp"
#include "sm90/device_layer.hpp"

namespace megamoe::test {

enum class Placement { shared_device, device_per_rank };

class GpuGroup {
 public:
  GpuGroup(const LayerConfig& config, const LayerWeights& weights, int ranks,
           std::chrono::nanoseconds deadline = std::chrono::seconds(2),
           Placement placement = Placement::shared_device)
      : config_(config), placement_(placement) {
    sm90::DeviceLayerOptions options;
    options.deadline = deadline;
    options.multiprocessors = device::multiprocessors();
    if (placement == Placement::shared_device) {
      options.multiprocessors = *options.multiprocessors / ranks;
    } else {
      device::enable_peer_access(ranks);
    }
    for (int r = 0; r < ranks; ++r) {
      use(r);
      arenas_.emplace_back(config, ranks);
      arenas_.back().poison(0xFF);
      options.arenas.push_back(arenas_.back().base());
    }
    for (int r = 0; r < ranks; ++r) {
      use(r);
      options.rank = r;
      layers_.push_back(std::make_unique<sm90::DeviceLayer>(config, weights, options));
      streams_.emplace_back();
      results_.emplace_back(config.max_tokens * config.hidden * 2, "y");
    }
  }

  sm90::DeviceLayer& layer(int rank) { return *layers_[static_cast<std::size_t>(rank)]; }
  sm90::GpuArena& arena(int rank) { return arenas_[static_cast<std::size_t>(rank)]; }
  cudaStream_t stream(int rank) { return streams_[static_cast<std::size_t>(rank)].get(); }
  BFloat16* y(int rank) { return results_[static_cast<std::size_t>(rank)].as<BFloat16>(); }

  /// Makes the rank's device the current one.
  void use(int rank) const {
    device::use_device(placement_ == Placement::device_per_rank ? rank : 0);
  }

  void load(int rank, const BatchData& batch) {
    use(rank);
    const sm90::GpuBatch to = layer(rank).batch();
    const auto copy = [](void* to_gpu, const void* from, std::size_t bytes) {
      device::check(cudaMemcpy(to_gpu, from, bytes, cudaMemcpyHostToDevice), "loading a batch");
    };
    copy(to.x, batch.x.data(), batch.x.size());
    copy(to.x_scales, batch.x_scales.data(), batch.x_scales.size());
    copy(to.experts, batch.experts.data(), batch.experts.size() * 8);
    copy(to.weights, batch.weights.data(), batch.weights.size() * 4);
  }

  /// One call of all ranks; y of each as f32.
  std::vector<std::vector<float>> run(const std::vector<BatchData>& batches,
                                      const sm90::GpuOverrides& overrides = {}) {
    for (std::size_t r = 0; r < batches.size(); ++r) {
      load(static_cast<int>(r), batches[r]);
      results_[r].fill(0xFF);
      device::check(cudaDeviceSynchronize(), "loading batches");
    }
    for (std::size_t r = 0; r < batches.size(); ++r) {
      const int rank = static_cast<int>(r);
      use(rank);
      layer(rank).forward(batches[r].tokens, y(rank), stream(rank), overrides);
    }
    std::vector<std::vector<float>> results;
    for (std::size_t r = 0; r < batches.size(); ++r) {
      const int rank = static_cast<int>(r);
      use(rank);
      layer(rank).wait(stream(rank));
      results.push_back(read(rank, batches[r].tokens));
    }
    return results;
  }

  std::vector<float> read(int rank, std::int64_t tokens) {
    std::vector<BFloat16> bits(static_cast<std::size_t>(tokens * config_.hidden));
    device::check(cudaMemcpy(bits.data(), y(rank), bits.size() * 2, cudaMemcpyDeviceToHost),
                  "reading y");
    std::vector<float> values;
    values.reserve(bits.size());
    for (const BFloat16 b : bits) values.push_back(to_float(b));
    return values;
  }

 private:
  LayerConfig config_;
  Placement placement_;
  std::vector<sm90::GpuArena> arenas_;
  std::vector<std::unique_ptr<sm90::DeviceLayer>> layers_;
  std::vector<device::Stream> streams_;
  std::vector<device::Memory> results_;
};

}  // namespace megamoe::test
