// The kernels before a call: x from bf16, and the number of tokens where the call will look for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megamoe/types.hpp"

namespace megamoe::sm90 {

/// All pointers to GPU memory; x aligned to 16 bytes.
struct QuantiseX {
  const BFloat16* x;         ///< [tokens, hidden]
  std::int64_t hidden;       ///< a multiple of 32
  std::int64_t tokens;       ///< rows, or the most that there can be
  const std::int32_t* word;  ///< rows, read by the kernel; null: `tokens` are
  std::byte* values;         ///< [tokens, hidden] E4M3
  std::byte* scales;         ///< [tokens, hidden / 32] UE8M0 or [tokens, ceil(hidden / 128)] f32
  bool f32_scales;           ///< per 128 columns; else UE8M0 per 32
};

/// Loads these kernels now: loading one later waits for the device.
void load_preparations();

/// Enqueues the conversion; its bits are those of convert_x.
void launch_quantise(const QuantiseX& task, void* stream);

/// Enqueues: *word = tokens.
void launch_store_tokens(std::int32_t* word, std::int64_t tokens, void* stream);
/// Enqueues: *word = *from, kept within 0 to most.
void launch_clamp_tokens(std::int32_t* word, const std::int32_t* from, std::int64_t most,
                         void* stream);

}  // namespace megamoe::sm90
