#include "symmetric/collective.hpp"

#include "base/check.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t n = 0; n < ranks.size(); ++n) {
    if (n > 0) text += n + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}", ranks[n]);
  }
  return text;
}

std::string describe_late(std::span<const int> ranks, std::chrono::nanoseconds deadline,
                          std::string_view what) {
  return fmt::format("{} did not come within {:.1f} s to {}: raise the deadline if it needs longer",
                     name_ranks(ranks), std::chrono::duration<double>(deadline).count(), what);
}

void check_same_call(std::string_view rank_0_call, int rank, std::string_view call) {
  if (call == rank_0_call) return;
  fail(ErrorCode::mismatch,
       "rank {} came to {} while rank 0 came to {}: all ranks make the same calls in the same "
       "order",
       rank, call, rank_0_call);
}

void check_payload(std::span<const std::byte> payload) {
  check_argument(payload.size() <= static_cast<std::size_t>(kMaxPayloadBytes),
                 "a rank contributes at most {} bytes to an all-gather, got {}", kMaxPayloadBytes,
                 payload.size());
}

}  // namespace megamoe
