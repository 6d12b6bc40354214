// Pages of memory, and their end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megamoe {

/// Zero-filled pages of this address space, unmapped on destruction.
class Mapping {
 public:
  /// Private to this process; pages are taken when they are touched. Throws Error{out_of_memory}.
  static Mapping anonymous(std::int64_t bytes);

  /// The file behind `descriptor`, shared with every process that maps it; the descriptor may be
  /// closed afterwards. Throws Error{out_of_memory}, and Error{io} if the file is shorter.
  static Mapping shared(int descriptor, std::int64_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  Mapping(int descriptor, int flags, std::int64_t bytes);

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace megamoe
