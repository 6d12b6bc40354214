#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.hpp"

namespace megamoe {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // of the format
constexpr int kMaxDepth = 8;                            // a header has 3 levels

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

/// A read-only mapping of a whole file; empty files are an empty span.
std::pair<std::shared_ptr<const void>, std::span<const std::byte>> map_file(
    const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    fail(ErrorCode::io, "{} cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool is_file = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(is_file ? status.st_size : 0);
  void* memory = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const int why = errno;
  close(descriptor);
  if (!is_file) fail(ErrorCode::io, "{} is no file", path.string());
  if (size == 0) return {nullptr, {}};
  if (memory == MAP_FAILED)
    fail(ErrorCode::io, "{} cannot be mapped: {}", path.string(), std::strerror(why));
  std::shared_ptr<const void> owner(
      memory, [size](const void* at) { munmap(const_cast<void*>(at), size); });
  return {std::move(owner), {static_cast<const std::byte*>(memory), size}};
}

/// Parses with a bound on depth and without names that come twice, which a map would hide.
Json parse_header(const std::string& file, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string trouble;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) trouble = "is nested too deeply";
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      trouble = "has the name '" + parsed.get<std::string>() + "' twice";
    }
    return true;
  };
  // The parser recurses on nothing, but what it builds is destroyed recursively: look at the depth
  // first.
  std::int64_t depth = 0;
  for (char c : text) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (depth > 1000) fail(ErrorCode::format, "{}: the header is nested too deeply", file);
  }
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail(ErrorCode::format, "{}: the header is no JSON: {}", file, error.what());
  }
  if (!trouble.empty()) fail(ErrorCode::format, "{}: the header {}", file, trouble);
  if (!header.is_object()) fail(ErrorCode::format, "{}: the header is no JSON object", file);
  return header;
}

/// a * b, or Error{format} beyond 63 bits.
std::int64_t product(std::int64_t a, std::int64_t b, const std::string& where) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    fail(ErrorCode::format, "{}: the shape is too large", where);
  return result;
}

std::int64_t whole_number(const Json& value, const std::string& where, const char* what) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < 0) {
    fail(ErrorCode::format, "{}: {} is {}: a whole number from 0 is wanted", where, what,
         value.dump());
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
  if (known == kDtypes.end()) fail(ErrorCode::format, "{}: unknown dtype {}", where, dtype.dump());
  tensor.dtype = known->dtype;
  if (!entry["shape"].is_array()) fail(ErrorCode::format, "{}: the shape is no list", where);
  std::int64_t bits = known->bits;
  for (const Json& size : entry["shape"]) {
    tensor.shape.push_back(whole_number(size, where, "a size"));
    bits = product(bits, tensor.shape.back(), where);
  }
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
  if (bits % 8 != 0 || end - begin != bits / 8) {
    fail(ErrorCode::format, "{}: {} bytes of data, but dtype and shape ask for {} bits", where,
         end - begin, bits);
  }
  tensor.bytes =
      data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

}  // namespace

std::string_view name_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}
std::int64_t bits_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].bits;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : name_(path.string()) {
  std::span<const std::byte> bytes;
  std::tie(mapping_, bytes) = map_file(path);
  parse(bytes);
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
  const Json header = parse_header(name_, text);
  std::vector<std::pair<const std::byte*, const std::byte*>> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      const bool strings =
          entry.is_object() &&
          std::all_of(entry.begin(), entry.end(), [](const Json& v) { return v.is_string(); });
      if (!strings) fail(ErrorCode::format, "{}: __metadata__ is no map of strings", name_);
      continue;
    }
    const TensorView& tensor =
        tensors_.emplace(name, parse_entry(entry, name_ + ": tensor " + name, data)).first->second;
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
  if (found == tensors_.end()) fail(ErrorCode::format, "{} has no tensor '{}'", name_, name);
  return found->second;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begin at a multiple of 8 bytes
  std::filesystem::path part = path;
  part += ".part" + std::to_string(getpid());
  std::ofstream file(part, std::ios::binary);
  const std::uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
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
