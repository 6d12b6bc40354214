// config.json: typed values with errors that name the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace megamoe {

class ModelConfig {
 public:
  /// Reads `directory`/config.json. Throws Error{io, format}.
  explicit ModelConfig(const std::filesystem::path& directory);

  /// Each throws Error{format} that names file and key: absent, of another type, or out of [1,
  /// 2^31).
  std::int64_t count(const std::string& key) const;
  std::string text(const std::string& key) const;

  /// The value, or `otherwise` where the key is absent or null.
  std::int64_t count_or(const std::string& key, std::int64_t otherwise) const;  ///< from 0
  double number_or(const std::string& key, double otherwise) const;
  bool flag_or(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;
  std::vector<std::int64_t> counts_or_empty(const std::string& key) const;

  bool has(const std::string& key) const;
  /// A text inside an object: quantization_config.quant_method; "" where there is none.
  std::string nested_text(const std::string& object, const std::string& key) const;

  /// Throws Error{unsupported} unless the key is absent or has this text.
  void require_text(const std::string& key, const std::string& only) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* find(const std::string& key) const;

  std::string file_;
  std::shared_ptr<const nlohmann::json> json_;
};

}  // namespace megamoe
