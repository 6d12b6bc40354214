#include "checkpoint/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.hpp"

namespace megamoe {

MappedFile map_file(const std::filesystem::path& path) {
  // Opening a named pipe would otherwise wait for somebody to write into it.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

}  // namespace megamoe
