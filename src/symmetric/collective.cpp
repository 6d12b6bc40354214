#include "symmetric/collective.hpp"

#include "base/check.hpp"
#include "base/units.hpp"
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
  return fmt::format("{} did not come within {} to {}: raise the deadline if it needs longer",
                     name_ranks(ranks), as_text(deadline), what);
}

void check_same_call(std::string_view rank_0_call, int rank, std::string_view call) {
  if (call == rank_0_call) return;
  fail(ErrorCode::mismatch,
       "rank {} came to {} while rank 0 came to {}: all ranks make the same calls in the same "
       "order",
       rank, call, rank_0_call);
}

void check_private_memory(Communicator& communicator, std::int64_t bytes, std::string_view what,
                          std::string_view fix) {
  std::vector<MemoryRequest> requests;
  const auto mine = encode(MemoryRequest{bytes, communicator.host_memory()});
  for (const auto& payload :
       communicator.all_gather(mine, fmt::format("ask for memory for {}", what))) {
    requests.push_back(decode_request(payload));
  }
  check_private_requests(requests, what, fix);
}

std::vector<FileDescriptor> Communicator::exchange_files(int, std::string_view what) {
  fail(ErrorCode::unsupported, "{}: only ranks that are processes pass files to each other", what);
}

void check_payload(std::span<const std::byte> payload) {
  check_argument(payload.size() <= static_cast<std::size_t>(kMaxPayloadBytes),
                 "a rank contributes at most {} bytes to an all-gather, got {}", kMaxPayloadBytes,
                 payload.size());
}

}  // namespace megamoe
