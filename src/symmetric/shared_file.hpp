// Files that exist only as long as somebody has them open or mapped.
#pragma once

#include <cstdint>

#include "symmetric/file_descriptor.hpp"

namespace megamoe {

/// A memfd of `bytes` zeros that nobody can resize, so that a peer's mapping never faults. It has
/// no name in any file system: nothing is left after any exit. Throws Error{unsupported} where
/// there is no memfd, Error{out_of_memory}, Error{io}.
FileDescriptor make_shared_file(const char* name, std::int64_t bytes);

}  // namespace megamoe
