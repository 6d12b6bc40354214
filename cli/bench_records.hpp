// Figures as records that name what they were measured on, by what and when.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/layer_source.hpp"
#include "cli/sweep.hpp"

namespace megamoe::cli {

/// One measurement with what it was of; the record adds commit, date and command.
struct MeasuredRecord {
  std::string kernel;
  std::string recipe;
  std::string execution;
  std::int64_t ranks = 1;
  std::string shape;
  std::int64_t tokens = 0;
  double us = 0;
  double tflops = 0;
  double gbps = 0;
  std::string device;
};
nlohmann::json to_records(const std::vector<MeasuredRecord>& measured);

/// One record per point: kernel, recipe, execution, ranks, shape, tokens (per rank), us, tflops,
/// gbps (of packed weights), device, commit, date, command.
nlohmann::json bench_records(const LayerSource& source, const std::string& kernel,
                             const std::string& device, const std::vector<SweepPoint>& points);

/// Adds records to the array in a file, which is made if it is not there. The file changes at once
/// or not at all. Throws Error{format} for a file that holds no array, Error{io}.
void append_records(const std::string& path, const nlohmann::json& records);

}  // namespace megamoe::cli
