// Random pools for the tests of the walk.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedule/walk.hpp"

namespace megamoe::test {

inline constexpr TaskSet kTaskSets[] = {TaskSet::all, TaskSet::pull_and_gemm1, TaskSet::gemm2};

struct Pool {
  std::vector<std::int64_t> first_block;
  WalkShape shape;

  std::int64_t experts() const { return static_cast<std::int64_t>(first_block.size()) - 1; }
  std::int64_t blocks() const { return first_block.back(); }
  Walk walk(TaskSet set) const { return Walk(first_block.data(), experts(), shape, set); }
  /// The expert whose blocks hold `block`.
  std::int64_t expert_of(std::int64_t block) const {
    std::int64_t expert = 0;
    while (first_block[static_cast<std::size_t>(expert + 1)] <= block) ++expert;
    return expert;
  }

  friend std::string text(const Pool& pool) {
    return fmt::format("blocks before each expert: {}; parts {} {} {}, experts per wave {}",
                       fmt::join(pool.first_block, " "), pool.shape.pull_parts,
                       pool.shape.gemm1_parts, pool.shape.gemm2_parts, pool.shape.experts_per_wave);
  }
};

inline Pool pool_of(const std::vector<std::int64_t>& blocks, const WalkShape& shape) {
  Pool pool{{0}, shape};
  for (std::int64_t count : blocks) pool.first_block.push_back(pool.blocks() + count);
  return pool;
}

/// From 0 to 40 experts: by `kind`, 0 any blocks, 1 mostly empty, 2 all empty, 3 one has all.
inline Pool random_pool(std::mt19937_64& random, int kind) {
  const auto below = [&](std::uint64_t end) { return static_cast<std::int64_t>(random() % end); };
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(below(41)));
  for (std::int64_t& count : blocks) {
    if (kind == 0) count = below(6);
    if (kind == 1) count = below(5) == 0 ? below(4) : 0;
  }
  if (kind == 3 && !blocks.empty()) blocks[random() % blocks.size()] = below(60) + 1;
  return pool_of(blocks, {.pull_parts = below(5) + 1,
                          .gemm1_parts = below(7) + 1,
                          .gemm2_parts = below(7) + 1,
                          .experts_per_wave = below(3) == 0 ? 1 : below(45) + 1});
}

}  // namespace megamoe::test
