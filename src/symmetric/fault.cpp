#include "symmetric/fault.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.hpp"

namespace megamoe {
namespace {

using Word = std::atomic_ref<std::uint32_t>;

// How long a rank that was not first waits for the first one's record. Writing it takes less than a
// microsecond, so a writer that needs longer was killed in between, or its core was taken away.
constexpr auto kRecordPatience = std::chrono::milliseconds(200);

/// The longest prefix of at most `limit` bytes that cuts no UTF-8 character.
std::size_t cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text.size();
  std::size_t length = limit;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return length;
}

void write_record(FaultRegion& record, ErrorCode code, int rank, std::string_view message) {
  if (message.empty()) message = "no reason was given";
  const std::size_t length = cut(message, sizeof(record.message));
  record.code = static_cast<std::uint32_t>(code);
  record.rank = rank;
  std::memcpy(record.message, message.data(), length);
  Word(record.length).store(static_cast<std::uint32_t>(length), std::memory_order_release);
}

void await_record(FaultRegion& record) {
  const auto start = std::chrono::steady_clock::now();
  while (Word(record.length).load(std::memory_order_acquire) == 0) {
    if (std::chrono::steady_clock::now() - start > kRecordPatience) return;
    std::this_thread::yield();
  }
}

}  // namespace

FaultBoard::FaultBoard(int rank, std::vector<FaultRegion*> regions)
    : rank_(rank), regions_(std::move(regions)) {}

bool FaultBoard::raised() const {
  return Word(regions_[static_cast<std::size_t>(rank_)]->abort).load(std::memory_order_acquire) !=
         0;
}

void FaultBoard::raise(ErrorCode code, std::string_view message) {
  FaultRegion& record = *regions_[0];
  std::uint32_t unclaimed = 0;
  if (Word(record.claimed).compare_exchange_strong(unclaimed, 1, std::memory_order_acq_rel)) {
    write_record(record, code, rank_, message);
  } else {
    await_record(record);
  }
  for (FaultRegion* region : regions_) Word(region->abort).store(1, std::memory_order_release);
}

void FaultBoard::rethrow() const {
  FaultRegion& record = *regions_[0];
  const std::size_t length = std::min<std::size_t>(
      Word(record.length).load(std::memory_order_acquire), sizeof(record.message));
  if (length == 0) {
    fail(ErrorCode::aborted, "a rank gave up the group and was lost before it could say why");
  }
  const std::string message(record.message, length);
  if (record.rank == rank_) throw Error(static_cast<ErrorCode>(record.code), message);
  fail(ErrorCode::aborted, "rank {} gave up the group: {}", record.rank, message);
}

}  // namespace megamoe
