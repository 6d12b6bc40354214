#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/check.hpp"
#include "checkpoint/json.hpp"
#include "checkpoint/mapped_file.hpp"

namespace megamoe {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // of the format
constexpr std::string_view kMetadata = "__metadata__";

struct DtypeEntry {
  Dtype dtype;
  std::string_view name;
  std::int64_t bits;
};
constexpr std::array<DtypeEntry, 17> kDtypes{{{Dtype::boolean, "BOOL", 8},
                                              {Dtype::u8, "U8", 8},
                                              {Dtype::i8, "I8", 8},
                                              {Dtype::u16, "U16", 16},
                                              {Dtype::i16, "I16", 16},
                                              {Dtype::f16, "F16", 16},
                                              {Dtype::bf16, "BF16", 16},
                                              {Dtype::u32, "U32", 32},
                                              {Dtype::i32, "I32", 32},
                                              {Dtype::f32, "F32", 32},
                                              {Dtype::u64, "U64", 64},
                                              {Dtype::i64, "I64", 64},
                                              {Dtype::f64, "F64", 64},
                                              {Dtype::f8_e4m3, "F8_E4M3", 8},
                                              {Dtype::f8_e5m2, "F8_E5M2", 8},
                                              {Dtype::f8_e8m0, "F8_E8M0", 8},
                                              {Dtype::f4, "F4", 4}}};

/// Bits of a tensor; nothing for sizes below 0 or a product beyond 63 bits.
std::optional<std::int64_t> bits_of(Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bits = bits_of(dtype);
  for (std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  }
  return bits;
}

std::int64_t whole_number(const Json& value, const std::string& where, const char* what) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < 0) {
    fail(ErrorCode::format, "{}: {} is {}: a whole number from 0 is wanted", where, what,
         shown(value));
  }
  return value.get<std::int64_t>();
}

/// One entry of the header; `data` is all that follows it.
TensorView parse_entry(const Json& entry, const std::string& where,
                       std::span<const std::byte> data) {
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.is_object() || !entry.contains(key))
      fail(ErrorCode::format, "{} has no '{}'", where, key);
  }
  TensorView tensor;
  const Json& dtype = entry["dtype"];
  const auto* known =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeEntry& candidate) {
        return dtype.is_string() && candidate.name == dtype.get<std::string>();
      });
  if (known == kDtypes.end()) fail(ErrorCode::format, "{}: unknown dtype {}", where, shown(dtype));
  tensor.dtype = known->dtype;
  if (!entry["shape"].is_array()) fail(ErrorCode::format, "{}: the shape is no list", where);
  for (const Json& size : entry["shape"])
    tensor.shape.push_back(whole_number(size, where, "a size"));
  const std::optional<std::int64_t> bits = bits_of(tensor.dtype, tensor.shape);
  if (!bits) fail(ErrorCode::format, "{}: the shape is too large", where);
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    fail(ErrorCode::format, "{}: data_offsets are no pair", where);
  const std::int64_t begin = whole_number(offsets[0], where, "an offset");
  const std::int64_t end = whole_number(offsets[1], where, "an offset");
  if (begin > end || end > static_cast<std::int64_t>(data.size())) {
    fail(ErrorCode::format,
         "{}: data_offsets [{}, {}] do not lie in the file's {} bytes of data: is it cut short?",
         where, begin, end, data.size());
  }
  if (*bits % 8 != 0 || end - begin != *bits / 8) {
    fail(ErrorCode::format, "{}: {} bytes of data, but dtype and shape ask for {} bits", where,
         end - begin, *bits);
  }
  tensor.bytes =
      data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

/// Throws Error{invalid_argument} unless the bytes are those of dtype and shape.
void check_bytes(const TensorToWrite& tensor) {
  const std::optional<std::int64_t> bits = bits_of(tensor.dtype, tensor.shape);
  check_argument(
      bits && *bits % 8 == 0 && *bits / 8 == static_cast<std::int64_t>(tensor.bytes.size()),
      "tensor {} of {} [{}] has {} bytes: as many as dtype and shape ask for are wanted",
      tensor.name, name_of(tensor.dtype), fmt::join(tensor.shape, ", "), tensor.bytes.size());
}

/// The header of a file that holds these tensors one behind the other.
std::string header_of(const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::set<std::string> names;  // finding a name in ordered_json would walk over all of them
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    check_bytes(tensor);
    check_argument(tensor.name != kMetadata, "no tensor can be called {}", kMetadata);
    check_argument(names.insert(tensor.name).second, "two tensors are called '{}'", tensor.name);
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    fail(ErrorCode::invalid_argument, "names of tensors are UTF-8: {}", error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begin at a multiple of 8 bytes
  return text;
}

}  // namespace

std::string_view name_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}
std::int64_t bits_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].bits;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : name_(path.string()) {
  const MappedFile file = map_file(path);
  mapping_ = file.owner;
  parse(file.bytes);
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)) {
  parse(bytes);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    fail(ErrorCode::format, "{} has {} bytes: too few for a safetensors file", name_, bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - sizeof header_bytes) {
    fail(
        ErrorCode::format,
        "{} claims a header of {} bytes and has {} in all: it is no safetensors file, or cut short",
        name_, header_bytes, bytes.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes,
                              header_bytes);
  const std::span<const std::byte> data = bytes.subspan(sizeof header_bytes + header_bytes);
  if (text.substr(0, 1) != "{") {
    fail(ErrorCode::format, "{}: the header does not begin with '{{': it is no safetensors file",
         name_);
  }
  const Json header = parse_json(text, name_ + ": the header");
  std::vector<std::pair<const std::byte*, const std::byte*>> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      const bool strings =
          entry.is_object() &&
          std::all_of(entry.begin(), entry.end(), [](const Json& v) { return v.is_string(); });
      if (!strings) fail(ErrorCode::format, "{}: __metadata__ is no map of strings", name_);
      continue;
    }
    const TensorView& tensor =
        tensors_.emplace(name, parse_entry(entry, name_ + ": tensor " + shown(name), data))
            .first->second;
    extents.emplace_back(tensor.bytes.data(), tensor.bytes.data() + tensor.bytes.size());
  }
  std::sort(extents.begin(), extents.end());
  const std::byte* end = data.data();
  for (const auto& [first, last] : extents) {
    if (first != end)
      fail(ErrorCode::format, "{}: tensors overlap or leave a hole at byte {} of the data", name_,
           end - data.data());
    end = last;
  }
  if (end != data.data() + data.size()) {
    fail(ErrorCode::format, "{}: {} bytes behind the last tensor belong to none", name_,
         data.data() + data.size() - end);
  }
}

const TensorView& SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, tensor] : tensors_) names.push_back(known);
    fail(ErrorCode::format, "{} has no tensor '{}'{}", name_, name, nearest(names, name));
  }
  return found->second;
}

std::string nearest(const std::vector<std::string>& sorted_names, const std::string& name) {
  constexpr std::size_t kMost = 3;
  const auto common = [&](const std::string& other) {
    return std::mismatch(name.begin(), name.end(), other.begin(), other.end()).first - name.begin();
  };
  // In the sorted list those that share most of their beginning stand around the place of `name`.
  auto first = std::lower_bound(sorted_names.begin(), sorted_names.end(), name);
  auto last = first;
  while (static_cast<std::size_t>(last - first) < kMost &&
         (first != sorted_names.begin() || last != sorted_names.end())) {
    const bool before = last == sorted_names.end() ||
                        (first != sorted_names.begin() && common(*(first - 1)) > common(*last));
    if (before) {
      --first;
    } else {
      ++last;
    }
  }
  std::string text;
  for (; first != last; ++first) text += (text.empty() ? ": near it are " : ", ") + shown(*first);
  return text;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<TensorToWrite>& tensors) {
  const std::string header = header_of(tensors);
  // A rename would replace a device or a pipe by a file: as root, even /dev/null.
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    fail(ErrorCode::io, "{} is there and no regular file: the name of a file is wanted",
         path.string());
  }
  std::filesystem::path part = path;
  part += ".part" + std::to_string(getpid());
  std::ofstream file(part, std::ios::binary);
  const std::uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const TensorToWrite& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
               static_cast<std::streamsize>(tensor.bytes.size()));
  }
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    fail(ErrorCode::io, "{} cannot be written: is its folder there, writable and not full?",
         path.string());
  }
}

}  // namespace megamoe
