// What the command says about a run: the table, the check against the reference, JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/rank_run.hpp"

namespace megamoe::cli {

/// How far y is from the f64 reference, over some tokens of every rank.
struct Check {
  std::int64_t tokens = 0;  ///< compared
  std::int64_t of = 0;
  double relative_l2 = 0;
  double symmetric_difference = 0;
  double tolerance = 0;
  bool passed() const { return relative_l2 <= tolerance; }
};

/// The reference on a sample of tokens that takes a few seconds at most (all of them, if they do).
/// y of the sample is in `expected`.
class Verifier {
 public:
  explicit Verifier(const LayerSource& source);
  Check check(const std::vector<float>& y) const;

 private:
  std::int64_t hidden_ = 0;
  std::int64_t total_ = 0;
  double tolerance_ = 0;
  std::vector<std::int64_t> sample_;  ///< token indices over all ranks
  std::vector<float> expected_;       ///< [sample, hidden]
};

/// A row per rank, and a total.
std::string rank_table(const std::vector<CallReport>& reports);

/// Sums and rates over all ranks: what the last lines of a run say.
std::string summary(const std::vector<CallReport>& reports);

/// The figures of a run as a document.
nlohmann::json to_json(const LayerSource& source, const ExecutionResult& result,
                       const Check* check);

/// The source's note as a line of its own; "" if it has none.
std::string note_line(const LayerSource& source);

/// Adds the source's note to a document or record about its layer; nothing if it has none.
void add_note(const LayerSource& source, nlohmann::json& document);

/// Writes the file and says so. Throws Error{io}.
void write_json(const std::string& path, const nlohmann::json& document);

}  // namespace megamoe::cli
