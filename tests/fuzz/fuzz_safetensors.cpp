// Any bytes as a safetensors file: Error{format}, or tensors that tile the data exactly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "megamoe/error.hpp"

#include "checkpoint/safetensors.hpp"

namespace megamoe {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Reads every byte of every tensor, so that a span beyond the file is found.
void check(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  std::size_t tensor_bytes = 0;
  unsigned sum = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    std::int64_t bits = bits_of(tensor.dtype);
    for (std::int64_t size : tensor.shape) bits *= size;
    require(bits == 8 * static_cast<std::int64_t>(tensor.bytes.size()));
    require(file.has(name) && &file.tensor(name) == &tensor);
    for (std::byte value : tensor.bytes) sum += std::to_integer<unsigned>(value);
    tensor_bytes += tensor.bytes.size();
  }
  require(tensor_bytes <= bytes.size() && sum <= 255 * bytes.size());
}

}  // namespace
}  // namespace megamoe

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    megamoe::check(megamoe::SafetensorsFile(bytes, "input"), bytes);
  } catch (const megamoe::Error& error) {
    megamoe::require(error.code() == megamoe::ErrorCode::format);
  }
  return 0;
}
