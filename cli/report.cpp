#include "cli/report.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/integers.hpp"
#include "base/names.hpp"
#include "cli/text.hpp"
#include "cpu/reference.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::cli {
namespace {

// Multiply-adds of the reference that take some two seconds of one core.
constexpr std::int64_t kReferenceProducts = 2'000'000'000;

std::int64_t slowest_ns(const std::vector<CallReport>& reports) {
  std::int64_t slowest = 1;
  for (const CallReport& report : reports) slowest = std::max(slowest, report.total_ns);
  return slowest;
}

std::string row_range(const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return "-";
  std::int64_t sum = 0;
  for (std::int64_t count : rows) sum += count;
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  return fmt::format("{}/{:.1f}/{}", *least,
                     static_cast<double>(sum) / static_cast<double>(rows.size()), *most);
}

/// What the backend does not measure is 0.
std::string phase(std::int64_t ns) {
  return ns > 0 ? duration(ns) : "-";
}

double per_ns(std::int64_t amount, std::int64_t ns) {
  return static_cast<double>(amount) / static_cast<double>(std::max<std::int64_t>(ns, 1));
}

}  // namespace

void write_json(const std::string& path, const nlohmann::json& document) {
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  file.close();
  if (!file)
    fail(ErrorCode::io, "{} could not be written: is the folder there and writable?", path);
  fmt::print("wrote {}\n", path);
}

Verifier::Verifier(const LayerSource& source)
    : hidden_(source.config().hidden), total_(source.total_tokens()) {
  const LayerConfig& config = source.config();
  tolerance_ = intermediate_format(config.recipe) == IntermediateFormat::bf16 ? 5e-3 : 1e-2;
  const std::int64_t per_token =
      3 * config.hidden * config.intermediate * (config.top_k + config.shared_experts);
  const std::int64_t affordable = max64(1, kReferenceProducts / per_token);
  const std::int64_t step = max64(1, ceil_div(total_, affordable));

  std::vector<BFloat16> x;
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
  std::int64_t first = 0;
  for (std::int64_t rank = 0; rank < source.ranks(); ++rank) {
    const SyntheticInput input = source.input(rank);
    for (std::int64_t t = 0; t < source.tokens(rank); ++t) {
      if ((first + t) % step != 0) continue;
      sample_.push_back(first + t);
      const auto h = t * config.hidden;
      const auto k = t * config.top_k;
      x.insert(x.end(), input.x.begin() + h, input.x.begin() + h + config.hidden);
      experts.insert(experts.end(), input.experts.begin() + k,
                     input.experts.begin() + k + config.top_k);
      weights.insert(weights.end(), input.weights.begin() + k,
                     input.weights.begin() + k + config.top_k);
    }
    first += source.tokens(rank);
  }
  expected_ = reference_forward(config, source.weights(-1),
                                reference_x(config.recipe, config.hidden, x), experts, weights);
}

Check Verifier::check(const std::vector<float>& y) const {
  std::vector<float> sampled;
  for (std::int64_t token : sample_) {
    sampled.insert(sampled.end(), y.begin() + token * hidden_, y.begin() + (token + 1) * hidden_);
  }
  return {static_cast<std::int64_t>(sample_.size()), total_, relative_l2(sampled, expected_),
          symmetric_difference(sampled, expected_), tolerance_};
}

std::string rank_table(const std::vector<CallReport>& reports) {
  Table table({"rank", "tokens", "routes", "rows/expert", "dispatch", "compute", "barrier B",
               "combine", "total", "GFLOP/s", "weights GB/s"});
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const CallReport& report = reports[rank];
    table.add({std::to_string(rank), std::to_string(report.tokens), std::to_string(report.routes),
               row_range(report.rows_per_expert), phase(report.dispatch_ns),
               phase(report.compute_ns), phase(report.barrier_b_ns), phase(report.combine_ns),
               duration(report.total_ns),
               fmt::format("{:.1f}", per_ns(report.flops, report.total_ns)),
               fmt::format("{:.2f}",
                           per_ns(report.weight_bytes,
                                  report.compute_ns > 0 ? report.compute_ns : report.total_ns))});
  }
  return table.str();
}

std::string summary(const std::vector<CallReport>& reports) {
  CallReport sum;
  for (const CallReport& report : reports) {
    sum.tokens += report.tokens;
    sum.routes += report.routes;
    sum.flops += report.flops;
    sum.pulled_bytes += report.pulled_bytes;
    sum.pushed_bytes += report.pushed_bytes;
    sum.weight_bytes += report.weight_bytes;
  }
  const std::int64_t ns = slowest_ns(reports);
  return fmt::format(
      "{} tokens, {} routes in {}: {:.1f} GFLOP/s; {:.2f} GB/s of packed weights, {:.2f} GB/s of "
      "rows pulled "
      "and pushed\n",
      sum.tokens, sum.routes, duration(ns), per_ns(sum.flops, ns), per_ns(sum.weight_bytes, ns),
      per_ns(sum.pulled_bytes + sum.pushed_bytes, ns));
}

std::string note_line(const LayerSource& source) {
  const std::string note = source.note();
  return note.empty() ? "" : fmt::format("note: {}\n", note);
}

void add_note(const LayerSource& source, nlohmann::json& document) {
  const std::string note = source.note();
  if (!note.empty()) document["note"] = note;
}

nlohmann::json to_json(const LayerSource& source, const ExecutionResult& result,
                       const Check* check) {
  const LayerConfig& config = source.config();
  nlohmann::json ranks = nlohmann::json::array();
  for (const CallReport& report : result.reports) {
    ranks.push_back({{"tokens", report.tokens},
                     {"routes", report.routes},
                     {"rows_per_expert", report.rows_per_expert},
                     {"dispatch_us", static_cast<double>(report.dispatch_ns) / 1e3},
                     {"compute_us", static_cast<double>(report.compute_ns) / 1e3},
                     {"barrier_b_us", static_cast<double>(report.barrier_b_ns) / 1e3},
                     {"combine_us", static_cast<double>(report.combine_ns) / 1e3},
                     {"total_us", static_cast<double>(report.total_ns) / 1e3},
                     {"flops", report.flops},
                     {"weight_bytes", report.weight_bytes},
                     {"pulled_bytes", report.pulled_bytes},
                     {"pushed_bytes", report.pushed_bytes}});
  }
  nlohmann::json document{{"layer", source.description()},
                          {"recipe", name_of(config.recipe)},
                          {"activation", name_of(config.activation)},
                          {"execution", name_of(result.execution)},
                          {"backend", name_of(result.backend)},
                          {"hidden", config.hidden},
                          {"intermediate", config.intermediate},
                          {"experts", config.experts},
                          {"shared_experts", config.shared_experts},
                          {"top_k", config.top_k},
                          {"ranks", ranks},
                          {"total_us", static_cast<double>(slowest_ns(result.reports)) / 1e3}};
  add_note(source, document);
  if (check != nullptr) {
    document["check"] = {{"tokens", check->tokens},
                         {"relative_l2", check->relative_l2},
                         {"symmetric_difference", check->symmetric_difference},
                         {"tolerance", check->tolerance},
                         {"passed", check->passed()}};
  }
  return document;
}

}  // namespace megamoe::cli
