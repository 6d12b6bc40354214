// The two loops that measure a machine, in the widest vectors that it has.
#pragma once

#include <cstdint>

namespace megamoe::cli {

/// The sum of `count` floats, read once; count is a multiple of 1024.
float read_once(const float* values, std::int64_t count);

/// `rounds` times twelve independent multiply-adds of vectors of f32, which stay in registers;
/// returns something that depends on them all.
float multiply_add(std::int64_t rounds);

/// f32 operations of one round: two per lane and multiply-add.
std::int64_t operations_per_round();

}  // namespace megamoe::cli
