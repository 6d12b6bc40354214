#include "symmetric/host_memory.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/check.hpp"

namespace megamoe {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The number that a file consists of; nothing for "max", a missing file, or one out of range.
std::optional<std::int64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

/// The number behind `key` in a file of lines "KEY NUMBER".
std::optional<std::int64_t> read_entry(const fs::path& file, const std::string& key) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

/// How one version of cgroups names its files.
struct CgroupNames {
  const char* limit;
  const char* usage;
  const char* cache;
};
constexpr CgroupNames kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupNames kVersion2{"memory.max", "memory.current", "inactive_file"};

std::int64_t left_in(const fs::path& group, const CgroupNames& names) {
  const auto limit = read_number(group / names.limit);
  const auto usage = read_number(group / names.usage);
  if (!limit || !usage) return kNoLimit;
  const std::int64_t cache = read_entry(group / "memory.stat", names.cache).value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cache));
}

/// The least that `path` below `root`, or any of its ancestors, has left. A container often sees
/// its own group as the root, though its path says otherwise: folders that are not there limit
/// nothing.
std::int64_t left_on_path(const fs::path& root, const fs::path& path, const CgroupNames& names) {
  std::int64_t left = left_in(root, names);
  fs::path group = root;
  for (const fs::path& part : path.relative_path()) {
    group /= part;
    left = std::min(left, left_in(group, names));
  }
  return left;
}

bool lists_memory(const std::string& controllers) {
  std::istringstream stream(controllers);
  std::string name;
  while (std::getline(stream, name, ',')) {
    if (name == "memory") return true;
  }
  return false;
}

/// Reads lines "ID:CONTROLLERS:PATH"; version 2 has the one line without controllers.
std::int64_t left_in_cgroups(const fs::path& proc, const fs::path& cgroups) {
  std::ifstream stream(proc / "self" / "cgroup");
  std::int64_t left = kNoLimit;
  std::string line;
  while (std::getline(stream, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) left = std::min(left, left_on_path(cgroups, path, kVersion2));
    if (lists_memory(controllers)) {
      left = std::min(left, left_on_path(cgroups / "memory", path, kVersion1));
    }
  }
  return left;
}

std::string in_gib(double bytes) {
  return fmt::format("{:.2f} GiB", bytes / (1024.0 * 1024.0 * 1024.0));
}

const HostMemory& least_of(std::span<const MemoryRequest> requests) {
  return std::min_element(requests.begin(), requests.end(),
                          [](const MemoryRequest& a, const MemoryRequest& b) {
                            return a.host.available_bytes < b.host.available_bytes;
                          })
      ->host;
}

}  // namespace

HostMemory host_memory_below(const fs::path& proc, const fs::path& cgroups) {
  HostMemory memory{kNoLimit, "nothing known"};
  if (const auto kib = read_entry(proc / "meminfo", "MemAvailable:")) {
    memory = {*kib * 1024, "free memory of the host"};
  }
  const std::int64_t left = left_in_cgroups(proc, cgroups);
  if (left < memory.available_bytes) memory = {left, "the limit of this process' memory cgroup"};
  return memory;
}

HostMemory available_host_memory() {
  return host_memory_below("/proc", "/sys/fs/cgroup");
}

std::vector<std::byte> encode(const MemoryRequest& request) {
  const std::int64_t numbers[2] = {request.bytes, request.host.available_bytes};
  std::vector<std::byte> data(sizeof(numbers) + request.host.limited_by.size());
  std::memcpy(data.data(), numbers, sizeof(numbers));
  std::memcpy(data.data() + sizeof(numbers), request.host.limited_by.data(),
              request.host.limited_by.size());
  return data;
}

MemoryRequest decode_request(std::span<const std::byte> data) {
  std::int64_t numbers[2] = {};
  if (data.size() < sizeof(numbers))
    fail(ErrorCode::internal, "a memory request that is cut short");
  std::memcpy(numbers, data.data(), sizeof(numbers));
  const auto text = data.subspan(sizeof(numbers));
  return {numbers[0],
          {numbers[1], std::string(reinterpret_cast<const char*>(text.data()), text.size())}};
}

void check_private_requests(std::span<const MemoryRequest> requests, std::string_view what,
                            std::string_view fix) {
  const HostMemory& least = least_of(requests);
  double sum = 0;
  for (const MemoryRequest& request : requests) sum += static_cast<double>(request.bytes);
  if (sum <= static_cast<double>(least.available_bytes)) return;
  const auto most = std::max_element(
      requests.begin(), requests.end(),
      [](const MemoryRequest& a, const MemoryRequest& b) { return a.bytes < b.bytes; });
  fail(ErrorCode::out_of_memory,
       "{}: {} rank(s) of this host need {} in all (up to {} each), and {} are available by {}: {}",
       what, requests.size(), in_gib(sum), in_gib(static_cast<double>(most->bytes)),
       in_gib(static_cast<double>(least.available_bytes)), least.limited_by, fix);
}

void check_requests(std::span<const MemoryRequest> requests) {
  const auto ranks = static_cast<std::int64_t>(requests.size());
  const std::int64_t bytes = requests[0].bytes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t other = requests[static_cast<std::size_t>(rank)].bytes;
    check_argument(other > 0, "symmetric memory: rank {} asked for {} bytes, wanted at least 1",
                   rank, other);
    if (other == bytes) continue;
    fail(ErrorCode::mismatch,
         "symmetric memory: rank 0 asked for {} bytes and rank {} for {}: all ranks of a group "
         "make their layers with the same shape, in the same order",
         bytes, rank, other);
  }
  const HostMemory& least = least_of(requests);
  if (bytes <= least.available_bytes / ranks) return;
  fail(ErrorCode::out_of_memory,
       "symmetric memory: {} rank(s) of this host need {} bytes each ({} in all), and {} bytes "
       "({}) are available by {}: lower max_tokens, or free memory",
       ranks, bytes, in_gib(static_cast<double>(bytes) * static_cast<double>(ranks)),
       least.available_bytes, in_gib(static_cast<double>(least.available_bytes)), least.limited_by);
}

}  // namespace megamoe
