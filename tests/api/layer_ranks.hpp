// The public interface with threads as ranks: what its tests share.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/megamoe.hpp"

#include "cli/synthetic.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {

/// Runs work(rank, group) in one thread per rank and returns the message of each rank's error, ""
/// for none.
inline std::vector<std::string> on_ranks(
    int ranks, const std::function<void(int, const Group&)>& work,
    std::chrono::nanoseconds deadline = std::chrono::seconds(60)) {
  GroupOptions options;
  options.deadline = deadline;
  std::vector<Group> groups = Group::threads(ranks, options);
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[static_cast<std::size_t>(rank)])] {
      try {
        work(rank, group);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  return messages;
}

inline void expect_no_errors(const std::vector<std::string>& messages) {
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    EXPECT_EQ(messages[rank], "") << "rank " << rank;
  }
}

/// Fills the batch with a rank's random tokens; x as bf16 lives in `input`.
inline Batch fill(const Layer& layer, const Input& input) {
  Batch batch = layer.batch(static_cast<std::int64_t>(input.x.size()) / layer.config().hidden);
  std::copy(input.experts.begin(), input.experts.end(), batch.experts.begin());
  std::copy(input.weights.begin(), input.weights.end(), batch.weights.begin());
  batch.x_bf16 = input.x;
  return batch;
}

inline std::vector<BFloat16> run(Layer& layer, const Input& input,
                                 Execution execution = Execution::fused) {
  std::vector<BFloat16> y(input.x.size());
  layer.forward(fill(layer, input), y, execution);
  return y;
}

inline LayerWeights all_weights(const LayerConfig& config, std::uint64_t seed = 1) {
  return cli::synthetic_weights(config, seed, 0, config.experts);
}

}  // namespace megamoe::test
