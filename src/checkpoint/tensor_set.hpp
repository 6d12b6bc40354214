// All tensors of a checkpoint folder: one file, or the shards that an index names.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"

namespace megamoe {

/// Remembers which tensors were asked for, so that one that nobody understood does not pass
/// unnoticed.
class TensorSet {
 public:
  /// Reads model.safetensors.index.json if there is one, else opens model.safetensors. Shards are
  /// mapped when one of their tensors is asked for. Throws Error{io, format}.
  explicit TensorSet(const std::filesystem::path& directory);

  bool has(const std::string& name) const;

  /// These throw Error{format} that names file and tensor, and what is wanted and got: for an
  /// absent tensor, another dtype, another shape.
  const TensorView& tensor(const std::string& name) const;
  const TensorView& tensor(const std::string& name, const std::vector<std::int64_t>& shape) const;
  std::span<const std::byte> bytes(const std::string& name, Dtype dtype,
                                   const std::vector<std::int64_t>& shape) const;
  /// A BF16, F16 or F32 tensor as f32.
  std::vector<float> floats(const std::string& name, const std::vector<std::int64_t>& shape) const;
  /// An F32 tensor of one element and rank 0 or 1.
  float number(const std::string& name) const;

  /// The names that begin with `prefix` and have not been asked for.
  std::vector<std::string> unread(const std::string& prefix) const;

  /// Keeps every file that was mapped so far; hand it to whoever keeps views.
  std::shared_ptr<const void> owner() const { return files_; }

 private:
  using Files = std::map<std::string, SafetensorsFile>;
  const SafetensorsFile& file_of(const std::string& name) const;

  std::filesystem::path directory_;
  std::optional<std::map<std::string, std::string>> shards_;  // tensor to file; none: all in one
  std::shared_ptr<Files> files_ = std::make_shared<Files>();
  mutable std::set<std::string> read_;
};

}  // namespace megamoe
