// Packed weights on disk: a safetensors file with one rank's strips and biases, and the layer they
// are for in its metadata.
#pragma once

#include <filesystem>

#include "cpu/packed_weights.hpp"
#include "plan/plan.hpp"

namespace megamoe {

/// Throws Error{io}.
void save_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights);

/// Throws Error{io, format}, and Error{mismatch} that names what the file was packed for and what
/// is wanted.
void load_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights);

}  // namespace megamoe
