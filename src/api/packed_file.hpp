// Packed weights on disk: a safetensors file with one rank's strips and biases, and the layer they
// are for in its metadata.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/packed_weights.hpp"
#include "plan/plan.hpp"
#include "sm90/device_layer.hpp"

namespace megamoe {

/// What a rank's packed experts depend on, in words: equal texts mean that they fit. The forms are
/// those of the CPU's kernels and of Hopper's.
inline constexpr std::string_view kStripsForm = "strips";
inline constexpr std::string_view kTilesForm = "sm90 tiles";
std::string packed_description(const LayerShape& shape, int rank, std::string_view form);

/// Throws Error{io}.
void save_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights);

/// Throws Error{io, format}, and Error{mismatch} that names what the file was packed for and what
/// is wanted.
void load_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights);

/// The same for what a rank on a CUDA device packed.
void save_packed_pieces(const std::filesystem::path& file, const LayerShape& shape, int rank,
                        const std::vector<sm90::PackedPiece>& pieces);
void load_packed_pieces(const std::filesystem::path& file, const LayerShape& shape, int rank,
                        sm90::DeviceLayer& layer);

}  // namespace megamoe
