// All tensors of a checkpoint folder: one file, or the shards that an index names.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"

namespace megamoe {

class TensorSet {
 public:
  /// Reads model.safetensors.index.json if there is one, else opens model.safetensors. Shards are
  /// mapped when one of their tensors is asked for. Throws Error{io, format}.
  explicit TensorSet(const std::filesystem::path& directory);

  bool has(const std::string& name) const;
  /// The tensor with this shape. Throws Error{format} that names tensor, shard, and what is wanted
  /// and got.
  const TensorView& tensor(const std::string& name, const std::vector<std::int64_t>& shape) const;
  /// A BF16, F16 or F32 tensor of this shape as f32.
  std::vector<float> floats(const std::string& name, const std::vector<std::int64_t>& shape) const;

  /// Keeps every file that was mapped so far; hand it to whoever keeps views.
  std::shared_ptr<const void> owner() const { return files_; }

 private:
  using Files = std::map<std::string, SafetensorsFile>;
  const SafetensorsFile& file_of(const std::string& name) const;

  std::filesystem::path directory_;
  std::map<std::string, std::string> shards_;  // tensor to file; empty: all in one
  std::shared_ptr<Files> files_ = std::make_shared<Files>();
};

}  // namespace megamoe
