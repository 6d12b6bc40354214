// The order of one expert's rows: source ranks take turns, one row each, for as long as they have
// any. So the pulls of neighbouring rows load all peers evenly. Both directions in closed form;
// nothing is ever sorted.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/integers.hpp"

namespace megamoe {

/// A row's origin: the source rank, and its position in that rank's list for the expert.
struct Turn {
  std::int64_t rank;
  std::int64_t position;
};

/// count(r): rows that rank r sends to the expert. `row` is below their sum.
/// Peels the smallest remaining count off all ranks that still have rows, at most `ranks` times.
/// Row: any signed integer that holds the sum; a GPU has few registers for wide ones.
template <class Count, class Row>
constexpr Turn turn_of_row(const Count& count, std::type_identity_t<Row> ranks, Row row) {
  Row dealt = 0;  // rows that every rank still active has dealt so far
  for (;;) {
    Row active = 0;
    Row least = std::numeric_limits<Row>::max();
    for (Row r = 0; r < ranks; ++r) {
      const Row rows = static_cast<Row>(count(r));
      if (rows <= dealt) continue;
      ++active;
      if (rows < least) least = rows;
    }
    if (active == 0)
      return {-1, -1};  // row beyond the sum: a broken contract, kept out of memory by the caller
    const Row rows = (least - dealt) * active;
    if (row < rows) {
      Row turn = row % active;
      for (Row r = 0; r < ranks; ++r) {
        if (static_cast<Row>(count(r)) > dealt && turn-- == 0) return {r, dealt + row / active};
      }
    }
    row -= rows;
    dealt = least;
  }
}

/// The inverse: all rows of earlier rounds, then those ranks before `turn.rank` that take part in
/// this round.
template <class Count>
constexpr std::int64_t row_of_turn(const Count& count, std::int64_t ranks, const Turn& turn) {
  std::int64_t row = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    row += min64(count(r), turn.position);
    if (r < turn.rank && count(r) > turn.position) ++row;
  }
  return row;
}

}  // namespace megamoe
