// Packs weights on the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "megamoe/weights.hpp"

#include "device/cuda.hpp"
#include "layout/sm90_weights.hpp"

namespace megamoe::sm90 {

/// One of the two matrices, packed, for all experts of a rank.
struct PackedWeights {
  PackedMatrix shape{};
  device::Memory tiles;
  device::Memory row_factors;
  device::Memory bias;  ///< f32 [expert][packed rows], zero where an expert has none
  enum class Bias { none, some } has_bias = Bias::none;
};

/// Memory for the packed matrices of `experts` experts. `what` names it in errors.
PackedWeights allocate_packed(const PackedMatrix& shape, std::int64_t experts,
                              std::string_view what);

/// An expert that has rows in the rank's pool.
struct PoolExpert {
  std::int64_t number;  ///< among the pool experts
  std::string name;     ///< for errors
  const ExpertWeights& weights;
};

/// The rank's routed experts, then the shared ones.
void for_each_pool_expert(const LayerShape& shape, std::int64_t rank, const LayerWeights& weights,
                          const std::function<void(const PoolExpert&)>& visit);

/// Throws Error{invalid_argument, format, unsupported} that names expert and matrix for the first
/// that `rank` could not pack.
void check_weights(const LayerShape& shape, std::int64_t rank, const LayerWeights& weights);

/// The rank's W1 and W2, from weights that check_weights passed: those in the recipe's format as
/// they are, bf16 quantised.
class WeightPacker {
 public:
  explicit WeightPacker(const LayerShape& shape);

  /// Packs an expert as number `pool_expert` of this rank. `what` names it in errors.
  void pack(const ExpertWeights& weights, std::int64_t pool_expert, PackedWeights& w1,
            PackedWeights& w2, std::string_view what);

  /// Values so far that were too small against their row's largest and had to be rounded.
  std::int64_t rounded_values() const;

 private:
  template <class Matrix>
  void pack_matrices(const ExpertWeights& weights, std::int64_t pool_expert, PackedWeights& w1,
                     PackedWeights& w2, std::string_view what) const;

  LayerShape shape_;
  WeightFormat format_;
  device::Memory values_[2];
  device::Memory scales_[2];
  device::Memory largest_;
  device::Memory rounded_;
};

}  // namespace megamoe::sm90
