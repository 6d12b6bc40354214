#include "checkpoint/model_config.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/check.hpp"

namespace megamoe {
namespace {

using Json = nlohmann::json;

std::int64_t whole_number(const Json& value, const std::string& file, const std::string& key,
                          std::int64_t least) {
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= least &&
                    value.get<std::int64_t>() < (std::int64_t{1} << 31);
  if (!fits) {
    fail(ErrorCode::format, "{}: {} is {}: a whole number from {} is wanted", file, key,
         value.dump(), least);
  }
  return value.get<std::int64_t>();
}

}  // namespace

ModelConfig::ModelConfig(const std::filesystem::path& directory)
    : file_((directory / "config.json").string()) {
  std::ifstream file(file_);
  if (!file) fail(ErrorCode::io, "{} cannot be opened: {}", file_, std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    json_ = std::make_shared<const Json>(Json::parse(text));
  } catch (const Json::exception& error) {
    fail(ErrorCode::format, "{} is no JSON: {}", file_, error.what());
  }
  if (!json_->is_object()) fail(ErrorCode::format, "{} is no JSON object", file_);
}

const Json* ModelConfig::find(const std::string& key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

bool ModelConfig::has(const std::string& key) const {
  return find(key) != nullptr;
}

std::int64_t ModelConfig::count(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(ErrorCode::format, "{} has no {}", file_, key);
  return whole_number(*value, file_, key, 1);
}

std::int64_t ModelConfig::count_or(const std::string& key, std::int64_t otherwise) const {
  const Json* value = find(key);
  return value == nullptr ? otherwise : whole_number(*value, file_, key, 0);
}

std::string ModelConfig::text(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(ErrorCode::format, "{} has no {}", file_, key);
  if (!value->is_string())
    fail(ErrorCode::format, "{}: {} is {}: a text is wanted", file_, key, value->dump());
  return value->get<std::string>();
}

std::string ModelConfig::text_or(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

double ModelConfig::number_or(const std::string& key, double otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number())
    fail(ErrorCode::format, "{}: {} is {}: a number is wanted", file_, key, value->dump());
  return value->get<double>();
}

bool ModelConfig::flag_or(const std::string& key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean())
    fail(ErrorCode::format, "{}: {} is {}: true or false is wanted", file_, key, value->dump());
  return value->get<bool>();
}

std::vector<std::int64_t> ModelConfig::counts_or_empty(const std::string& key) const {
  std::vector<std::int64_t> counts;
  const Json* value = find(key);
  if (value == nullptr) return counts;
  if (!value->is_array())
    fail(ErrorCode::format, "{}: {} is {}: a list is wanted", file_, key, value->dump());
  for (const Json& item : *value) counts.push_back(whole_number(item, file_, key, 0));
  return counts;
}

std::string ModelConfig::nested_text(const std::string& object, const std::string& key) const {
  const Json* value = find(object);
  if (value == nullptr) return "";
  const auto inner = value->is_object() ? value->find(key) : value->end();
  if (!value->is_object() || inner == value->end() || !inner->is_string()) {
    fail(ErrorCode::format, "{}: {} has no text {}", file_, object, key);
  }
  return inner->get<std::string>();
}

void ModelConfig::require_text(const std::string& key, const std::string& only) const {
  const std::string found = text_or(key, only);
  if (found != only) refuse(key, "'" + found + "' is not understood: '" + only + "' is");
}

void ModelConfig::refuse(const std::string& key, const std::string& why) const {
  fail(ErrorCode::unsupported, "{}: {}: {}", file_, key, why);
}

}  // namespace megamoe
