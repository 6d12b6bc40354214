// A layer of a rank on a CUDA device.
#pragma once

#include <memory>
#include <string>

#include "api/cuda_plan.hpp"
#include "api/gpu_rank.hpp"
#include "api/layer_state.hpp"
#include "sm90/device_layer.hpp"

namespace megamoe {

class CudaLayer final : public LayerState {
 public:
  CudaLayer(const LayerConfig& config, const WeightSource& source, const Group& group,
            const LayerOptions& options);
  ~CudaLayer() override;

  const LayerConfig& config() const override { return plan_.config; }
  Batch batch(std::int64_t tokens) const override;
  void forward(const LayerCall& call) override;
  void enqueue(const LayerCall& call, const StreamCall& where) override;
  void wait() override;
  bool poll() override;
  std::shared_ptr<GraphState> graph(const GraphOptions& options) override;
  void refresh(const LayerWeights& weights) override;
  PackedState packed_experts() const override;
  void save_packed(const std::filesystem::path& file) override;
  std::string explain() const override;
  const CallReport& report() const override;

 private:
  friend class CudaGraph;
  GpuRank& gpu() const { return *group_.state().gpu(); }
  /// Of the packed experts, for those who share them.
  std::string description() const;
  /// Throws unless the layer can be called so.
  void check(const LayerCall& call, std::int64_t rows) const;
  /// Enqueues one call by `give`, in the order of the rank's calls. tokens: for the report.
  template <class Give>
  void call(std::int64_t tokens, void* stream, const Give& give);
  /// Throws what the calls that are over ran into.
  void check_faults();
  void fill_report() const;

  Group group_;
  CudaPlan plan_;
  std::shared_ptr<GpuRankArena> arena_;
  std::unique_ptr<sm90::DeviceLayer> layer_;
  std::shared_ptr<CallEvents> events_;  // of the last call
  bool pending_ = false;                // whether that call has not been waited for
  std::int64_t tokens_ = 0;             // of that call
  mutable bool reported_ = true;
  mutable CallReport report_;
};

}  // namespace megamoe
