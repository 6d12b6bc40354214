#include "checkpoint/model_config.hpp"

#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/json.hpp"

namespace megamoe {
namespace {

using Json = nlohmann::json;

/// Below 2^31, so that products of two sizes stay in 63 bits.
std::int64_t whole_number(const Json& value, const std::string& where, const std::string& key,
                          std::int64_t least) {
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= least &&
                    value.get<std::int64_t>() < (std::int64_t{1} << 31);
  if (!fits) {
    fail(ErrorCode::format, "{}: {} is {}: a whole number from {} and below 2^31 is wanted", where,
         key, shown(value), least);
  }
  return value.get<std::int64_t>();
}

/// Whether a value that nobody asked for may be passed over.
bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) ||
         (value.is_number() && value.get<double>() == 0);
}

}  // namespace

ModelConfig::ModelConfig(const std::filesystem::path& directory)
    : where_((directory / "config.json").string()),
      json_(std::make_shared<const Json>(read_json(where_))) {}

ModelConfig::ModelConfig(std::string where, std::shared_ptr<const Json> json)
    : where_(std::move(where)), json_(std::move(json)) {}

const Json* ModelConfig::find(const std::string& key) const {
  read_.insert(key);
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

const Json& ModelConfig::get(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(ErrorCode::format, "{} has no {}", where_, key);
  return *value;
}

bool ModelConfig::has(const std::string& key) const {
  return find(key) != nullptr;
}

std::int64_t ModelConfig::count(const std::string& key) const {
  return whole_number(get(key), where_, key, 1);
}

std::int64_t ModelConfig::count_or(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? whole_number(get(key), where_, key, 0) : otherwise;
}

std::string ModelConfig::text(const std::string& key) const {
  const Json& value = get(key);
  if (!value.is_string())
    fail(ErrorCode::format, "{}: {} is {}: a text is wanted", where_, key, shown(value));
  return value.get<std::string>();
}

float ModelConfig::magnitude(const std::string& key) const {
  const Json& value = get(key);
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0 && number <= double{std::numeric_limits<float>::max()})) {
    fail(ErrorCode::format, "{}: {} is {}: a number from 0 is wanted, in the range of f32", where_,
         key, shown(value));
  }
  return static_cast<float>(number);
}

bool ModelConfig::flag(const std::string& key) const {
  const Json& value = get(key);
  if (!value.is_boolean())
    fail(ErrorCode::format, "{}: {} is {}: true or false is wanted", where_, key, shown(value));
  return value.get<bool>();
}

std::vector<std::int64_t> ModelConfig::counts_or_empty(const std::string& key) const {
  std::vector<std::int64_t> counts;
  const Json* value = find(key);
  if (value == nullptr) return counts;
  if (!value->is_array())
    fail(ErrorCode::format, "{}: {} is {}: a list is wanted", where_, key, shown(*value));
  for (const Json& item : *value) counts.push_back(whole_number(item, where_, key, 0));
  return counts;
}

std::optional<ModelConfig> ModelConfig::object(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object())
    fail(ErrorCode::format, "{}: {} is {}: an object is wanted", where_, key, shown(*value));
  return ModelConfig(where_ + ": " + key, {json_, value});
}

void ModelConfig::require_text(const std::string& key, const std::string& only) const {
  if (has(key) && text(key) != only)
    refuse(key, "'" + shown(text(key)) + "' is not understood: '" + only + "' is");
}

void ModelConfig::require_all_read(std::span<const std::string_view> keys) const {
  for (std::string_view key : keys) {
    const auto found = json_->find(std::string(key));
    if (found == json_->end() || says_nothing(*found) || read_.count(std::string(key)) != 0)
      continue;
    refuse(std::string(key), shown(*found) + " is not understood here: it would change the layer");
  }
}

void ModelConfig::refuse(const std::string& key, const std::string& why) const {
  fail(ErrorCode::unsupported, "{}: {}: {}", where_, key, why);
}

}  // namespace megamoe
