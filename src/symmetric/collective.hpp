// What collective calls of every kind of group check and say.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace megamoe {

/// "rank 2", "ranks 1 and 3", "ranks 1, 2 and 5".
std::string name_ranks(std::span<const int> ranks);

/// The message for ranks that did not come to `what` in time.
std::string describe_late(std::span<const int> ranks, std::chrono::nanoseconds deadline,
                          std::string_view what);

/// Throws Error{mismatch} unless `rank` came to the same collective call as rank 0.
void check_same_call(std::string_view rank_0_call, int rank, std::string_view call);

/// Throws Error{invalid_argument} beyond kMaxPayloadBytes.
void check_payload(std::span<const std::byte> payload);

}  // namespace megamoe
