// A rank's experts in the order in which the CPU kernels read them (layout/weight_strips.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "megamoe/weights.hpp"

#include "layout/shape.hpp"
#include "layout/weight_strips.hpp"

namespace megamoe {

struct UnmapPages {
  std::int64_t bytes = 0;
  void operator()(std::byte* data) const;
};

/// Pages of private memory, in huge pages where the system gives them.
class PageMemory {
 public:
  PageMemory() = default;
  /// Zero-filled. what: "packed weights". Throws Error{out_of_memory} that names it and the bytes.
  PageMemory(std::int64_t bytes, std::string_view what);

  std::byte* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  std::int64_t bytes() const { return data_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, UnmapPages> data_;
};

/// The shapes of one expert's packed matrices: W1, with gate and up, and W2.
struct ExpertStrips {
  StripShape gemm1;
  StripShape gemm2;

  std::int64_t bytes() const { return gemm1.bytes() + gemm2.bytes(); }
};

/// Of a pool expert: shared ones may be in another format than routed ones.
ExpertStrips expert_strips(const LayerShape& shape, std::int64_t pool_expert);

/// One expert as the engine uses it. Bias pointers are null where the layer has none; they are
/// padded to whole strips.
struct PackedExpert {
  ExpertStrips strips;
  const std::byte* gemm1;
  const std::byte* gemm2;
  const float* gate_bias;
  const float* up_bias;
  const float* down_bias;
};

/// Bytes of a rank's packed matrices; biases come on top.
std::int64_t packed_matrix_bytes(const LayerShape& shape);

class PackedWeights {
 public:
  /// Memory for the pool experts of one rank: its routed experts, then the shared ones. All zero.
  explicit PackedWeights(const LayerShape& shape);

  /// Packs the experts of `rank` over what was there. Converts formats where the recipe asks for
  /// it. Throws Error{invalid_argument, format, unsupported} naming expert and matrix, before
  /// anything is replaced.
  void pack(const LayerWeights& weights, std::int64_t rank);

  PackedExpert expert(std::int64_t pool_expert) const;

  /// Everything, for saving and loading: strips as bytes, biases as floats (empty without).
  std::span<std::byte> strips() {
    return {strips_.data(), static_cast<std::size_t>(strips_.bytes())};
  }
  std::vector<float>& biases() { return biases_; }
  /// Floats that biases() has when there are any.
  std::int64_t bias_floats() const { return shape_.pool_experts() * bias_floats_per_expert(); }

 private:
  std::int64_t bias_floats_per_expert() const;
  std::int64_t expert_offset(std::int64_t pool_expert) const;
  void check_expert(const ExpertWeights& expert, std::int64_t pool_expert,
                    const std::string& what) const;
  void pack_expert(const ExpertWeights& expert, std::int64_t pool_expert, const std::string& what);
  void pack_biases(const ExpertWeights& expert, std::int64_t pool_expert);

  LayerShape shape_;
  PageMemory strips_;
  std::vector<float> biases_;
};

}  // namespace megamoe
