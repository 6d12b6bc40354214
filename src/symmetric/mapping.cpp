#include "symmetric/mapping.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/check.hpp"

namespace megamoe {

Mapping::Mapping(int descriptor, int flags, std::int64_t bytes) : bytes_(bytes) {
  void* const data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                          flags | MAP_NORESERVE, descriptor, 0);
  if (data == MAP_FAILED) {
    fail(ErrorCode::out_of_memory,
         "symmetric memory: cannot map {} bytes: {}; see the limits of address space (ulimit -v) "
         "and of mappings (vm.max_map_count)",
         bytes, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
}

Mapping Mapping::anonymous(std::int64_t bytes) {
  return Mapping(-1, MAP_PRIVATE | MAP_ANONYMOUS, bytes);
}

Mapping Mapping::shared(int descriptor, std::int64_t bytes) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || status.st_size < bytes) {
    fail(ErrorCode::io, "symmetric memory: wanted a file of {} bytes from a peer, got {}", bytes,
         status.st_size);
  }
  return Mapping(descriptor, MAP_SHARED, bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

}  // namespace megamoe
