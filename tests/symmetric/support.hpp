// What the tests of this room share: errors as values, ranks as threads, control words as an arena
// has them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "symmetric/barrier.hpp"
#include "symmetric/communicator.hpp"
#include "symmetric/fault.hpp"
#include "symmetric/wait.hpp"

namespace megamoe::testing_symmetric {

using namespace std::chrono_literals;

/// The error that `action` throws, if any.
inline std::optional<Error> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline ::testing::AssertionResult says(const std::optional<Error>& error, ErrorCode code,
                                       const std::vector<std::string>& words) {
  if (!error) return ::testing::AssertionFailure() << "nothing was thrown";
  if (error->code() != code) {
    return ::testing::AssertionFailure()
           << "code " << static_cast<int>(error->code()) << ", message: " << error->what();
  }
  for (const std::string& word : words) {
    if (std::string(error->what()).find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no '" << word << "' in: " << error->what();
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::string text_of(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

using Rank = std::function<void(const std::shared_ptr<Communicator>&)>;

/// Runs `body` as every rank of a thread group; each thread drops its handle when it ends. Entry r
/// of the result: what rank r threw.
inline std::vector<std::optional<Error>> run_threads(int ranks, const GroupOptions& options,
                                                     const Rank& body,
                                                     MemorySource memory = available_host_memory) {
  auto group = make_thread_group(ranks, options, std::move(memory));
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    threads.emplace_back([&body, &errors, r, handle = std::move(group[r])]() mutable {
      errors[r] = error_of([&] { body(handle); });
      handle.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The control words of one barrier and the fault record, in symmetric memory.
struct Control {
  explicit Control(Communicator& group)
      : memory(group.allocate(4096)),
        faults(group.rank(), regions(group.ranks())),
        waiter(group, faults),
        barrier("barrier A", group.rank(), words(group.ranks())) {}

  std::vector<FaultRegion*> regions(int ranks) const {
    std::vector<FaultRegion*> result;
    for (int rank = 0; rank < ranks; ++rank) {
      result.push_back(reinterpret_cast<FaultRegion*>(memory->base(rank)));
    }
    return result;
  }
  std::vector<std::uint64_t*> words(int ranks) const {
    std::vector<std::uint64_t*> result;
    for (int rank = 0; rank < ranks; ++rank) {
      result.push_back(reinterpret_cast<std::uint64_t*>(memory->base(rank) + 1024));
    }
    return result;
  }
  /// Plain data that barriers order: 128 values per rank.
  std::uint64_t* data(int rank) const {
    return reinterpret_cast<std::uint64_t*>(memory->base(rank) + 2048);
  }

  std::unique_ptr<SymmetricMemory> memory;
  FaultBoard faults;
  Waiter waiter;
  GroupBarrier barrier;
};

/// What ranks do between two barriers: everyone writes to everyone, then reads what all wrote.
/// Returns the first round and rank whose value was not there, or nothing.
inline std::optional<std::string> exchange_rounds(Communicator& group, Control& control,
                                                  std::uint32_t rounds) {
  const int me = group.rank();
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    // Two banks by turns: a rank that is one round ahead does not touch what others still read.
    const int bank = static_cast<int>(round % 2) * group.ranks();
    for (int to = 0; to < group.ranks(); ++to) control.data(to)[bank + me] = round * 100 + me;
    control.barrier.arrive_and_wait({1, round}, control.waiter, control.faults);
    for (int from = 0; from < group.ranks(); ++from) {
      if (control.data(me)[bank + from] == round * 100 + static_cast<std::uint64_t>(from)) continue;
      return "round " + std::to_string(round) + " from rank " + std::to_string(from);
    }
  }
  return std::nullopt;
}

}  // namespace megamoe::testing_symmetric
