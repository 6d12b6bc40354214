#include "checkpoint/tensor_set.hpp"

#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "numerics/bf16.hpp"
#include "numerics/f16.hpp"

namespace megamoe {
namespace {

constexpr const char* kSingleFile = "model.safetensors";

/// Which file holds which tensor, as the index says.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::format, "{} is no JSON: {}", path.string(), error.what());
  }
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    fail(ErrorCode::format, "{} has no object weight_map", path.string());
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    // A shard lies in the folder itself: an index must not reach other files of the machine.
    if (name.empty() || name.find('/') != std::string::npos || name == ".." || name == ".") {
      fail(ErrorCode::format,
           "{}: tensor {} is in {}: the name of a file beside the index is wanted", path.string(),
           tensor, shard.dump());
    }
    shards[tensor] = name;
  }
  return shards;
}

}  // namespace

TensorSet::TensorSet(const std::filesystem::path& directory) : directory_(directory) {
  const auto index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(index)) {
    shards_ = read_index(index);
  } else {
    files_->try_emplace(kSingleFile, directory / kSingleFile);
  }
}

bool TensorSet::has(const std::string& name) const {
  return shards_.empty() ? file_of(name).has(name) : shards_.count(name) != 0;
}

const SafetensorsFile& TensorSet::file_of(const std::string& name) const {
  if (shards_.empty()) return files_->at(kSingleFile);
  const auto shard = shards_.find(name);
  if (shard == shards_.end()) {
    fail(ErrorCode::format, "{}: the index names no file for tensor '{}'", directory_.string(),
         name);
  }
  return files_->try_emplace(shard->second, directory_ / shard->second).first->second;
}

const TensorView& TensorSet::tensor(const std::string& name,
                                    const std::vector<std::int64_t>& shape) const {
  const SafetensorsFile& file = file_of(name);
  const TensorView& tensor = file.tensor(name);
  if (tensor.shape != shape) {
    fail(ErrorCode::format, "{}: tensor {} has the shape [{}]: config.json asks for [{}]",
         file.name(), name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  }
  return tensor;
}

std::vector<float> TensorSet::floats(const std::string& name,
                                     const std::vector<std::int64_t>& shape) const {
  const TensorView& view = tensor(name, shape);
  const bool wide = view.dtype == Dtype::f32;
  if (!wide && view.dtype != Dtype::bf16 && view.dtype != Dtype::f16) {
    fail(ErrorCode::format, "{}: tensor {} is {}: BF16, F16 or F32 is wanted", file_of(name).name(),
         name, name_of(view.dtype));
  }
  std::vector<float> values(view.bytes.size() / (wide ? 4 : 2));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (wide) {
      std::memcpy(&values[i], view.bytes.data() + 4 * i, sizeof(float));
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, view.bytes.data() + 2 * i, sizeof bits);
    values[i] = view.dtype == Dtype::bf16 ? to_float(BFloat16{bits}) : f16_to_float(bits);
  }
  return values;
}

}  // namespace megamoe
