// config.json: typed values with errors that name the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace megamoe {

/// Remembers which keys were asked for, so that one that nobody understood does not pass unnoticed.
class ModelConfig {
 public:
  /// Reads `directory`/config.json. Throws Error{io, format}.
  explicit ModelConfig(const std::filesystem::path& directory);

  /// Each throws Error{format} that names file and key: absent or null, of another type, or out of
  /// range.
  std::int64_t count(const std::string& key) const;  ///< from 1
  bool flag(const std::string& key) const;
  float magnitude(const std::string& key) const;  ///< from 0, in the range of f32
  std::string text(const std::string& key) const;

  /// The value, or `otherwise` where the key is absent or null.
  std::int64_t count_or(const std::string& key, std::int64_t otherwise) const;  ///< from 0
  std::vector<std::int64_t> counts_or_empty(const std::string& key) const;

  bool has(const std::string& key) const;
  /// The object under a key, if there is one; its errors name both keys.
  std::optional<ModelConfig> object(const std::string& key) const;

  /// Throws Error{unsupported} unless the key is absent or has this text.
  void require_text(const std::string& key, const std::string& only) const;
  /// Throws Error{unsupported} for a key of these that says something (more than null, 0 or an
  /// empty list) and was not asked for.
  void require_all_read(std::span<const std::string_view> keys) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  /// The file, and inside an object of it that one's key.
  const std::string& file() const { return where_; }

 private:
  ModelConfig(std::string where, std::shared_ptr<const nlohmann::json> json);
  const nlohmann::json* find(const std::string& key) const;
  const nlohmann::json& get(const std::string& key) const;

  std::string where_;
  std::shared_ptr<const nlohmann::json> json_;
  mutable std::set<std::string> read_;
};

}  // namespace megamoe
