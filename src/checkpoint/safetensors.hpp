// safetensors files: mapped, validated whole before any tensor is handed out, and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megamoe {

/// The element types of the format.
enum class Dtype {
  boolean,
  u8,
  i8,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f4
};

/// As the header spells it: "BF16".
std::string_view name_of(Dtype dtype);
/// 4 for F4.
std::int64_t bits_of(Dtype dtype);

struct TensorView {
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  /// Maps the file and checks its header: lengths, types, shapes, offsets without holes or
  /// overlaps, no name twice, tensors begin anywhere. Throws Error{io} when the system refuses,
  /// Error{format} that names file and tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// The same over bytes in memory that outlive this object; `name` stands for the path in
  /// messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  /// Throws Error{format} that names tensor, file, and what is near that name.
  const TensorView& tensor(const std::string& name) const;
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::string& name() const { return name_; }

 private:
  void parse(std::span<const std::byte> bytes);

  std::shared_ptr<const void> mapping_;
  std::string name_;
  std::map<std::string, TensorView> tensors_;
};

/// ": near it are a, b, c": up to three of the names that share the longest beginning with `name`;
/// "" if there are no names.
std::string nearest(const std::vector<std::string>& sorted_names, const std::string& name);

struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes beside `path` first and renames, so that no half-written file ever has that name. Throws
/// Error{io} when the system refuses, Error{invalid_argument} for bytes that do not fit dtype and
/// shape, and for names that come twice or are no UTF-8.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<TensorToWrite>& tensors);

}  // namespace megamoe
