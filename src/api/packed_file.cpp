#include "api/packed_file.hpp"

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "api/layer_state.hpp"
#include "base/check.hpp"
#include "base/names.hpp"
#include "checkpoint/safetensors.hpp"

namespace megamoe {
namespace {

// Raised when layout/weight_strips.hpp or layout/sm90_weights.hpp changes.
constexpr int kPackedFormat = 1;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Throws Error{mismatch} unless the file is for the layer that is described.
void check_description(const SafetensorsFile& file, const std::filesystem::path& path,
                       const std::string& wanted) {
  const std::span<const std::byte> text = file.tensor("layer").bytes;
  const std::string found(reinterpret_cast<const char*>(text.data()), text.size());
  if (found != wanted) {
    fail(ErrorCode::mismatch, "{} holds {}; wanted are {}: pack the weights anew", path.string(),
         found, wanted);
  }
}

TensorToWrite bytes_tensor(const std::string& name, std::span<const std::byte> bytes) {
  return {name, Dtype::u8, {static_cast<std::int64_t>(bytes.size())}, bytes};
}

}  // namespace

std::string packed_description(const LayerShape& shape, int rank, std::string_view form) {
  const std::string shared =
      shape.shared_weights ? fmt::format(" in {}", name_of(*shape.shared_weights)) : "";
  return fmt::format("{} {} of rank {} of {}: H {} I {} E {} (+{} shared{}), {}", form,
                     kPackedFormat, rank, shape.ranks, shape.hidden, shape.intermediate,
                     shape.experts, shape.shared_experts, shared, name_of(shape.recipe));
}

void check_shared_experts(const PackedState& packed, const std::string& wanted) {
  if (packed.description == wanted) return;
  fail(ErrorCode::mismatch,
       "the packed experts to share are {}; wanted are {}: make this layer from weights, or from a "
       "packed file",
       packed.description, wanted);
}

void save_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights) {
  const std::string description = packed_description(plan.shape, rank, kStripsForm);
  write_safetensors(
      file, {bytes_tensor("layer", bytes_of(description)), bytes_tensor("strips", weights.strips()),
             bytes_tensor("biases", std::as_bytes(std::span(weights.biases())))});
}

void load_packed_file(const std::filesystem::path& path, const Plan& plan, int rank,
                      PackedWeights& weights) {
  const SafetensorsFile file(path);
  check_description(file, path, packed_description(plan.shape, rank, kStripsForm));
  const std::span<const std::byte> strips = file.tensor("strips").bytes;
  const std::span<const std::byte> biases = file.tensor("biases").bytes;
  const std::int64_t bias_bytes = weights.bias_floats() * std::int64_t{sizeof(float)};
  if (strips.size() != weights.strips().size() ||
      (!biases.empty() && static_cast<std::int64_t>(biases.size()) != bias_bytes)) {
    fail(ErrorCode::format, "{} has {} bytes of strips and {} of biases: {} and 0 or {} are wanted",
         path.string(), strips.size(), biases.size(), weights.strips().size(), bias_bytes);
  }
  std::memcpy(weights.strips().data(), strips.data(), strips.size());
  weights.biases().resize(biases.size() / sizeof(float));
  if (!biases.empty()) std::memcpy(weights.biases().data(), biases.data(), biases.size());
}

void save_packed_pieces(const std::filesystem::path& file, const LayerShape& shape, int rank,
                        const std::vector<sm90::PackedPiece>& pieces) {
  const std::string description = packed_description(shape, rank, kTilesForm);
  std::vector<TensorToWrite> tensors{bytes_tensor("layer", bytes_of(description))};
  for (const sm90::PackedPiece& piece : pieces) {
    tensors.push_back(bytes_tensor(piece.name, piece.bytes));
  }
  write_safetensors(file, tensors);
}

void load_packed_pieces(const std::filesystem::path& path, const LayerShape& shape, int rank,
                        sm90::DeviceLayer& layer) {
  const SafetensorsFile file(path);
  check_description(file, path, packed_description(shape, rank, kTilesForm));
  layer.load([&](const std::string& name) { return file.tensor(name).bytes; });
}

}  // namespace megamoe
