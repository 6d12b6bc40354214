// One rank's x and y in the memory that its layer's backend reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "megamoe/layer.hpp"

#include "cli/synthetic.hpp"
#include "device/gpu.hpp"

namespace megamoe::cli {

class RankIo {
 public:
  /// For inputs of up to `tokens` tokens of the layer of a group with that backend. On CUDA the
  /// rank's device is current; made before the layer, since ranks that share a device wait in their
  /// calls for one that allocates.
  RankIo(const LayerConfig& config, Backend backend, std::int64_t tokens);

  /// The layer's batch of the input's first `tokens` tokens: ids and weights in the arena, x as
  /// bf16.
  Batch load(const Layer& layer, const SyntheticInput& input, std::int64_t tokens);

  /// Where a call of so many tokens writes.
  std::span<BFloat16> y(std::int64_t tokens);
  /// What it wrote, in host memory; valid until the next load.
  std::span<const BFloat16> read(std::int64_t tokens);

 private:
  std::int64_t hidden_;
  std::int64_t top_k_;
  Backend backend_;
  std::vector<BFloat16> host_y_;
  device::Memory x_;  // of a CUDA device
  device::Memory y_;
  std::optional<device::Stream> stream_;
};

}  // namespace megamoe::cli
