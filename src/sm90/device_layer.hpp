// One layer of one rank on one Hopper GPU, one launch per call or the split's three. No CUDA
// header: pointers to GPU memory are plain pointers, a stream is the runtime's handle as void*.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megamoe/types.hpp"
#include "megamoe/weights.hpp"

#include "plan/sm90_plan.hpp"

namespace megamoe::sm90 {

/// A GPU rank's symmetric memory: on the current device, control words zeroed.
class GpuArena {
 public:
  /// Throws Error{out_of_memory}.
  GpuArena(const LayerConfig& config, std::int64_t ranks);
  ~GpuArena();
  GpuArena(GpuArena&&) noexcept;

  std::byte* base() const;
  const GpuArenaLayout& layout() const;
  /// For tests: fills every data region with this byte.
  void poison(int byte);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A rank's packed experts, which several of its layers may share.
struct RankWeights;

struct DeviceLayerOptions {
  int rank = 0;
  /// Arena of every rank, mapped into this process; the calling rank's own is on the current
  /// device. They outlive the layer.
  std::vector<std::byte*> arenas;
  /// Multiprocessors that are the rank's; absent: all of the device. Ranks that share a device must
  /// together have no more than it has.
  std::optional<int> multiprocessors;
  /// Thread blocks of a fused or staged call, one per multiprocessor; absent: as many.
  std::optional<int> blocks;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  std::uint32_t layer = 1;  ///< ordinal of the layer in its group, 1 or more
  /// weights() of a layer of the same rank, ranks and sizes; null: memory of its own.
  std::shared_ptr<RankWeights> weights{};
};

/// Input of the next call: GPU pointers into this rank's arena, for up to max_tokens tokens.
struct GpuBatch {
  std::byte* x;           ///< [tokens, H] E4M3
  std::byte* x_scales;    ///< [tokens, H / 32] UE8M0, or [tokens, ceil(H / 128)] f32
  std::int64_t* experts;  ///< [tokens, top_k]
  float* weights;         ///< [tokens, top_k]
};

/// One call. Pointers are to GPU memory.
struct GpuCall {
  std::int64_t tokens = 0;  ///< T; where `tokens_word` says it, the number that is expected
  const std::int32_t* tokens_word = nullptr;  ///< T, read when the call begins: at most max_tokens
  const BFloat16* x_bf16 = nullptr;           ///< null: the batch's x and scales are filled already
  BFloat16* y = nullptr;                      ///< [tokens, H], with `tokens_word` [max_tokens, H]
  GpuOverrides overrides{};
};

/// Packed weights of a rank as files hold them.
struct PackedPiece {
  std::string name;
  std::vector<std::byte> bytes;
};

/// The device that is current when it is made is current in every call of a DeviceLayer.
class DeviceLayer {
 public:
  /// Packs this rank's experts on the current device. Throws Error{unsupported},
  /// {invalid_argument}, {format}, {out_of_memory}.
  DeviceLayer(const LayerConfig& config, const LayerWeights& weights,
              const DeviceLayerOptions& options);
  /// Without weights, or with those of another layer: in memory of its own refresh() or load()
  /// comes before the first call.
  DeviceLayer(const LayerConfig& config, const DeviceLayerOptions& options);
  ~DeviceLayer();
  DeviceLayer(DeviceLayer&&) noexcept;

  GpuBatch batch() const;

  /// Enqueues a call: y from what batch() holds when the stream gets there. With more than one rank
  /// every rank enqueues its call before any of them waits.
  void enqueue(const GpuCall& call, void* stream);

  /// The same in one line.
  void forward(std::int64_t tokens, BFloat16* y, void* stream, const GpuOverrides& overrides = {});

  /// Waits for the stream, then throws what the calls on it ran into, as check().
  void wait(void* stream);

  /// Throws what the calls that are over ran into: Error{deadline} that names rank, signal, seen
  /// and wanted; Error{mismatch}; Error{invalid_argument} for an id beyond the experts (that
  /// token's y is NaN; the layer stays usable). Waits for no kernel.
  void check();

  /// Rows of each local expert in the last call, which is over.
  std::vector<std::int64_t> rows_per_expert() const;

  /// Packs other weights in place. No call runs. Keeps the old ones when it throws for what is
  /// wrong with the new.
  void refresh(const LayerWeights& weights);

  std::shared_ptr<RankWeights> weights() const;

  /// Everything that packing made, to be given to load() of a layer of the same config, ranks and
  /// rank.
  std::vector<PackedPiece> packed() const;
  /// `piece` finds the bytes of a name; a throw of its own passes through. Throws Error{format} for
  /// a piece of the wrong size.
  void load(const std::function<std::span<const std::byte>(const std::string& name)>& piece);

  /// The plan of a call of so many tokens.
  GpuPlan plan(std::int64_t tokens, const GpuOverrides& overrides = {}) const;
  /// Weights that were too small against their row's largest and had to be rounded at packing.
  std::int64_t rounded_weights() const;
  /// Bytes of packed weights of one expert.
  std::int64_t expert_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megamoe::sm90
