// How much memory this host can still give to this process, and whether a group's arenas fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megamoe {

struct HostMemory {
  std::int64_t available_bytes = 0;
  std::string limited_by;  ///< "free memory of the host", or which limit is tighter
};

using MemorySource = std::function<HostMemory()>;

/// The least of MemAvailable and what the memory cgroups of this process (v2 or v1, ancestors
/// included) have left, not counting file cache that the kernel gives back. Files that cannot be
/// read limit nothing.
HostMemory available_host_memory();

/// The same with other folders in place of /proc and /sys/fs/cgroup.
HostMemory host_memory_below(const std::filesystem::path& proc,
                             const std::filesystem::path& cgroups);

/// What one rank wants of symmetric memory and what it sees available.
struct MemoryRequest {
  std::int64_t bytes = 0;
  HostMemory host;
};

/// For a payload that every rank brings to a meeting.
std::vector<std::byte> encode(const MemoryRequest& request);
MemoryRequest decode_request(std::span<const std::byte> data);

/// Throws, on every rank alike, Error{out_of_memory} with what is needed and available when the
/// requests of a host's ranks for private memory exceed together what any of them sees available.
/// what: "packed weights"; fix: what the user can do about it.
void check_private_requests(std::span<const MemoryRequest> requests, std::string_view what,
                            std::string_view fix);

/// Throws, on every rank alike, Error{invalid_argument} for a size below one byte, Error{mismatch}
/// when the ranks' sizes differ, and Error{out_of_memory} when all parts together exceed what any
/// rank sees available.
void check_requests(std::span<const MemoryRequest> requests);

}  // namespace megamoe
