#include "checkpoint/tensor_set.hpp"

#include <cstring>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/json.hpp"
#include "numerics/bf16.hpp"
#include "numerics/f16.hpp"

namespace megamoe {
namespace {

constexpr const char* kSingleFile = "model.safetensors";

/// Which file holds which tensor, as the index says.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json json = read_json(path);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty())
    fail(ErrorCode::format, "{} has no object weight_map that names tensors", path.string());
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    // A shard lies in the folder itself: an index must not reach other files of the machine.
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == ".." || name == ".") {
      fail(ErrorCode::format,
           "{}: tensor {} is in {}: the name of a file beside the index is wanted", path.string(),
           shown(tensor), shown(shard));
    }
    shards[tensor] = name;
  }
  return shards;
}

/// Whether there is a file of this name; Error{io} where the system does not say.
bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error) fail(ErrorCode::io, "{} cannot be opened: {}", path.string(), error.message());
  return there;
}

/// The names of a sorted map that begin with `prefix` and are not in `read`.
template <class Map>
std::vector<std::string> names_below(const Map& map, const std::string& prefix,
                                     const std::set<std::string>& read) {
  std::vector<std::string> names;
  for (auto at = map.lower_bound(prefix);
       at != map.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
    if (read.count(at->first) == 0) names.push_back(at->first);
  }
  return names;
}

}  // namespace

TensorSet::TensorSet(const std::filesystem::path& directory) : directory_(directory) {
  const auto index = directory / "model.safetensors.index.json";
  if (is_there(index)) {
    shards_ = read_index(index);
  } else {
    files_->try_emplace(kSingleFile, directory / kSingleFile);
  }
}

bool TensorSet::has(const std::string& name) const {
  return shards_ ? shards_->count(name) != 0 : file_of(name).has(name);
}

const SafetensorsFile& TensorSet::file_of(const std::string& name) const {
  if (!shards_) return files_->at(kSingleFile);
  const auto shard = shards_->find(name);
  if (shard == shards_->end()) {
    std::vector<std::string> names;
    for (const auto& [known, file] : *shards_) names.push_back(known);
    fail(ErrorCode::format, "{}: the index names no file for tensor '{}'{}", directory_.string(),
         name, nearest(names, name));
  }
  return files_->try_emplace(shard->second, directory_ / shard->second).first->second;
}

const TensorView& TensorSet::tensor(const std::string& name) const {
  const TensorView& tensor = file_of(name).tensor(name);
  read_.insert(name);
  return tensor;
}

const TensorView& TensorSet::tensor(const std::string& name,
                                    const std::vector<std::int64_t>& shape) const {
  const TensorView& found = tensor(name);
  if (found.shape != shape) {
    fail(ErrorCode::format,
         "{}: tensor {} has the shape [{}]: [{}] is wanted, by the sizes in config.json",
         file_of(name).name(), name, fmt::join(found.shape, ", "), fmt::join(shape, ", "));
  }
  return found;
}

std::span<const std::byte> TensorSet::bytes(const std::string& name, Dtype dtype,
                                            const std::vector<std::int64_t>& shape) const {
  const Dtype found = tensor(name).dtype;
  if (found != dtype) {
    fail(ErrorCode::format, "{}: tensor {} is {}: {} is wanted", file_of(name).name(), name,
         name_of(found), name_of(dtype));
  }
  return tensor(name, shape).bytes;
}

float TensorSet::number(const std::string& name) const {
  const TensorView& found = tensor(name);
  const bool one = found.shape.empty() || found.shape == std::vector<std::int64_t>{1};
  if (found.dtype != Dtype::f32 || !one) {
    fail(ErrorCode::format, "{}: tensor {} is {} [{}]: one F32 is wanted", file_of(name).name(),
         name, name_of(found.dtype), fmt::join(found.shape, ", "));
  }
  float value;
  std::memcpy(&value, found.bytes.data(), sizeof value);
  return value;
}

std::vector<std::string> TensorSet::unread(const std::string& prefix) const {
  return shards_ ? names_below(*shards_, prefix, read_)
                 : names_below(files_->at(kSingleFile).tensors(), prefix, read_);
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
