// Checkpoint folders that tests write, load and take away again; and errors looked at closely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "megamoe/checkpoint.hpp"
#include "megamoe/error.hpp"

#include "checkpoint/safetensors.hpp"

namespace megamoe::test {

/// An empty folder of its own that goes with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_text(const std::filesystem::path& path, std::string_view text);
std::string read_text(const std::filesystem::path& path);

struct Tensor {
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

template <class T>
Tensor make_tensor(Dtype dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}

using Tensors = std::map<std::string, Tensor>;

void write_tensors(const std::filesystem::path& path, const Tensors& tensors);

/// A model to be changed and then written.
class ModelFolder {
 public:
  ModelFolder() = default;
  /// A copy of tests/fixtures/`fixture`.
  explicit ModelFolder(const std::string& fixture);

  Tensors tensors;
  nlohmann::json config;

  /// config.json and model.safetensors.
  void write() const;
  /// config.json, an index, and the tensors dealt to `shards` files.
  void write_shards(std::size_t shards) const;
  /// Writes one file and loads.
  CheckpointLayer load(std::int64_t layer = 0) const;

  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

/// Passes if `call` throws Error of this code whose message has all the parts.
template <class Call>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, Call call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }
    EXPECT_LT(message.size(), 2000u) << "a message for people";
    return;
  }
  ADD_FAILURE() << "no error; wanted one with '" << (parts.empty() ? "" : parts.front()) << "'";
}

}  // namespace megamoe::test
