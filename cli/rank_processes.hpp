// Ranks as child processes of the command.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace megamoe::cli {

/// What one rank brought back.
struct RankOutcome {
  std::string report;              ///< what the rank's work returned, for the parent to read
  std::vector<std::byte> payload;  ///< what it wrote into its part of the shared memory
};

/// How run_ranks waits for its children.
struct RankWatch {
  /// The ranks' own, after which they notice a rank that hangs; zero: never. A rank that is stopped
  /// for some seconds more than this, or has not ended so long after another failed, is killed.
  std::chrono::nanoseconds deadline{};
  /// Called several times a second until all have ended; may be empty.
  std::function<void()> tick;
};

/// Runs work(rank, payload) in `ranks` child processes at once: `payload` is payload_bytes[rank] of
/// memory that the parent reads afterwards; the returned text is the rank's report. Call before any
/// thread is started.
///
/// If a rank fails or dies, waits for the others (they notice by themselves), then throws the error
/// of the first cause: a rank's own error before those that only say that the group was given up; a
/// rank killed by a signal by its name. Ranks that had to be killed are named in that error.
std::vector<RankOutcome> run_ranks(
    std::int64_t ranks, const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(std::int64_t rank, std::span<std::byte> payload)>& work,
    const RankWatch& watch = {});

}  // namespace megamoe::cli
