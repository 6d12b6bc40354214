#include "api/packed_file.hpp"

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/names.hpp"
#include "checkpoint/safetensors.hpp"

namespace megamoe {
namespace {

// Raised when layout/weight_strips.hpp changes.
constexpr int kPackedFormat = 1;

/// What the strips depend on, in words: equal texts mean that a file fits.
std::string description_of(const Plan& plan, int rank) {
  const LayerShape& shape = plan.shape;
  return fmt::format("strips {} of rank {} of {}: H {} I {} E {} (+{} shared), {}", kPackedFormat,
                     rank, shape.ranks, shape.hidden, shape.intermediate, shape.experts,
                     shape.shared_experts, name_of(shape.recipe));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TensorToWrite bytes_tensor(const std::string& name, std::span<const std::byte> bytes) {
  return {name, Dtype::u8, {static_cast<std::int64_t>(bytes.size())}, bytes};
}

}  // namespace

void save_packed_file(const std::filesystem::path& file, const Plan& plan, int rank,
                      PackedWeights& weights) {
  const std::string description = description_of(plan, rank);
  write_safetensors(
      file, {bytes_tensor("layer", bytes_of(description)), bytes_tensor("strips", weights.strips()),
             bytes_tensor("biases", std::as_bytes(std::span(weights.biases())))});
}

void load_packed_file(const std::filesystem::path& path, const Plan& plan, int rank,
                      PackedWeights& weights) {
  const SafetensorsFile file(path);
  const std::span<const std::byte> text = file.tensor("layer").bytes;
  const std::string found(reinterpret_cast<const char*>(text.data()), text.size());
  const std::string wanted = description_of(plan, rank);
  if (found != wanted) {
    fail(ErrorCode::mismatch, "{} holds {}; wanted are {}: pack the weights anew", path.string(),
         found, wanted);
  }
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

}  // namespace megamoe
