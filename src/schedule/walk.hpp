// The one total order of a rank's tasks, and the walk over it by ticket.
//
// Progress: a task waits only for tasks with smaller tickets (its block's pulls precede its GEMM-1
// tasks, which precede its GEMM-2 tasks), tickets are dealt in order and never skipped, and a
// worker finishes a task before it takes the next. So the unfinished task with the smallest ticket
// never waits for anybody: no deadlock for any number of workers.
#pragma once

#include <cstdint>

#include "base/integers.hpp"

namespace megamoe {

enum class TaskKind { pull, gemm1, gemm2 };

struct Task {
  TaskKind kind;
  std::int64_t expert;  ///< pool expert: the rank's routed ones, then the shared ones
  std::int64_t block;   ///< index in the pool: its first row is block * block_rows
  std::int64_t part;    ///< pull: which rows of the block; GEMM: which range of outputs
};

/// Which kinds of task a set of workers does. Fused workers do all; the split's K1 and K2 share
/// them out.
enum class TaskSet { all, pull_and_gemm1, gemm2 };

/// Tasks per block, and experts per wave. A wave's GEMM-1 tasks are all dealt before its GEMM-2
/// tasks.
struct WalkShape {
  std::int64_t pull_parts = 1;
  std::int64_t gemm1_parts = 1;
  std::int64_t gemm2_parts = 1;
  std::int64_t experts_per_wave = 1;
};

/// Maps tickets to tasks. Cheap for ascending tickets: it keeps its place. One per worker.
///
/// Order: the pulls of wave 0; then for each wave w the pulls of w + 1, the GEMM-1 tasks of w, the
/// GEMM-2 tasks of w (pulls run one wave ahead, so that data move while matrices are multiplied).
/// Inside a wave blocks ascend, and all parts of a block precede the next block.
class Walk {
 public:
  /// first_block[e], e in [0, experts]: blocks of earlier pool experts. The array outlives the
  /// walk.
  constexpr Walk(const std::int64_t* first_block, std::int64_t experts, const WalkShape& shape,
                 TaskSet set)
      : first_block_(first_block), experts_(experts), shape_(shape), set_(set) {
    waves_ = ceil_div(experts, shape.experts_per_wave);
  }

  /// Tasks in all.
  constexpr std::int64_t size() const { return first_block_[experts_] * parts_per_block(); }

  /// The task with this ticket; ticket in [0, size()), not smaller than that of the call before.
  constexpr Task at(std::int64_t ticket) {
    while (ticket - segment_begin_ >= segment_size()) {
      segment_begin_ += segment_size();
      ++segment_;
      expert_ = 0;
    }
    const TaskKind kind = segment_kind();
    const std::int64_t in_segment = ticket - segment_begin_;
    const std::int64_t block =
        first_block_[first_expert(segment_wave())] + in_segment / parts(kind);
    expert_ = max64(expert_, first_expert(segment_wave()));
    while (first_block_[expert_ + 1] <= block) ++expert_;
    return {kind, expert_, block, in_segment % parts(kind)};
  }

 private:
  // Segments in order: 0 is the pulls of wave 0; then three for each wave: pulls of the next, GEMM
  // 1, GEMM 2.
  constexpr TaskKind segment_kind() const {
    if (segment_ == 0) return TaskKind::pull;
    switch ((segment_ - 1) % 3) {
      case 0:
        return TaskKind::pull;
      case 1:
        return TaskKind::gemm1;
      default:
        return TaskKind::gemm2;
    }
  }
  constexpr std::int64_t segment_wave() const {
    if (segment_ == 0) return 0;
    return (segment_ - 1) / 3 + (segment_kind() == TaskKind::pull ? 1 : 0);
  }
  constexpr std::int64_t first_expert(std::int64_t wave) const {
    return min64(wave * shape_.experts_per_wave, experts_);
  }
  constexpr bool in_set(TaskKind kind) const {
    return set_ == TaskSet::all || (set_ == TaskSet::gemm2) == (kind == TaskKind::gemm2);
  }
  constexpr std::int64_t parts(TaskKind kind) const {
    switch (kind) {
      case TaskKind::pull:
        return shape_.pull_parts;
      case TaskKind::gemm1:
        return shape_.gemm1_parts;
      default:
        return shape_.gemm2_parts;
    }
  }
  constexpr std::int64_t parts_in_set(TaskKind kind) const {
    return in_set(kind) ? parts(kind) : 0;
  }
  constexpr std::int64_t parts_per_block() const {
    return parts_in_set(TaskKind::pull) + parts_in_set(TaskKind::gemm1) +
           parts_in_set(TaskKind::gemm2);
  }
  constexpr std::int64_t segment_size() const {
    const TaskKind kind = segment_kind();
    const std::int64_t wave = segment_wave();
    if (!in_set(kind) || wave >= waves_) return 0;
    return (first_block_[first_expert(wave + 1)] - first_block_[first_expert(wave)]) * parts(kind);
  }

  const std::int64_t* first_block_;
  std::int64_t experts_;
  WalkShape shape_;
  TaskSet set_;
  std::int64_t waves_ = 0;
  std::int64_t segment_ = 0;
  std::int64_t segment_begin_ = 0;
  std::int64_t expert_ = 0;
};

/// first_block[0 .. experts]: blocks before each expert, from the rows of each. rows(e) >= 0.
template <class Rows>
constexpr void fill_first_blocks(const Rows& rows, std::int64_t experts, std::int64_t block_rows,
                                 std::int64_t* first_block) {
  first_block[0] = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    first_block[e + 1] = first_block[e] + ceil_div(rows(e), block_rows);
  }
}

/// Experts in a wave: the fewest that still give every worker a tile, with a factor of two for
/// imbalance.
constexpr std::int64_t experts_per_wave(std::int64_t workers, std::int64_t tiles_per_expert) {
  return max64(1, ceil_div(2 * workers, max64(1, tiles_per_expert)));
}

}  // namespace megamoe
