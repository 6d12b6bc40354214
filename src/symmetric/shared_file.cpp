#include "symmetric/shared_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/check.hpp"

namespace megamoe {
namespace {

/// A file beyond the limit would not fail but kill the process with SIGXFSZ.
void check_file_size_limit(std::int64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (static_cast<std::uint64_t>(bytes) <= limit.rlim_cur) return;
  fail(ErrorCode::out_of_memory,
       "symmetric memory: {} bytes needed at this rank, and files of at most {} bytes are allowed "
       "(ulimit -f): raise that limit",
       bytes, limit.rlim_cur);
}

}  // namespace

FileDescriptor make_shared_file(const char* name, std::int64_t bytes) {
  check_file_size_limit(bytes);
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file && errno == ENOSYS) {
    fail(ErrorCode::unsupported,
         "symmetric memory: this system has no memfd_create (Linux 3.17): use a thread group");
  }
  if (!file) {
    fail(ErrorCode::io, "symmetric memory: cannot create a shared file: {}", std::strerror(errno));
  }
  if (ftruncate(file.get(), bytes) != 0) {
    fail(ErrorCode::out_of_memory, "symmetric memory: cannot size a shared file to {} bytes: {}",
         bytes, std::strerror(errno));
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(ErrorCode::io, "symmetric memory: cannot seal a shared file: {}", std::strerror(errno));
  }
  return file;
}

}  // namespace megamoe
