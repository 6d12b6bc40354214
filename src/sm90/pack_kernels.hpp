// The packing kernels, for host code.
#pragma once

#include <cstddef>

#include "sm90/pack.hpp"

namespace megamoe::sm90 {

/// GPU memory of one expert's packed matrix, and what the packing needs besides.
struct PackDestination {
  PackedMatrix shape;
  std::byte* tiles;
  float* row_factors;           ///< [packed rows]
  std::int32_t* largest;        ///< scratch, [packed rows]
  unsigned long long* rounded;  ///< added to
};

/// Enqueues the packing on the default stream. `source` is in GPU memory.
void launch_pack(const PackSource& source, const PackDestination& to);
/// The same of FP8 weights: nothing is rounded, and every row's factor is 1.
void launch_pack(const Fp8PackSource& source, const PackDestination& to);

}  // namespace megamoe::sm90
