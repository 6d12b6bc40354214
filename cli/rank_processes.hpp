// Ranks as child processes of the command.
#pragma once

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

/// Runs work(rank, payload) in `ranks` child processes at once: `payload` is payload_bytes[rank] of
/// memory that the parent reads afterwards; the returned text is the rank's report. Call before any
/// thread is started. `watch`, if given, is called several times a second until all have ended.
///
/// If a rank fails or dies, waits for the others (they notice by themselves), then throws the error
/// of the first cause: a rank's own error before those that only say that the group was given up; a
/// rank killed by a signal by its name.
std::vector<RankOutcome> run_ranks(
    std::int64_t ranks, const std::vector<std::int64_t>& payload_bytes,
    const std::function<std::string(std::int64_t rank, std::span<std::byte> payload)>& work,
    const std::function<void()>& watch = {});

}  // namespace megamoe::cli
