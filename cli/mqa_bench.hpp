// `bench --kernel mqa-logits`: times of the FP8 MQA logits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megamoe/mqa_logits.hpp"

namespace CLI {
class App;
}

namespace megamoe::cli {

/// The options that belong to this kernel alone.
struct MqaBenchValues {
  std::int64_t keys = 4096;
  std::int64_t heads = 64;
  std::int64_t head_dim = 128;
  MqaWeightFormat weights = MqaWeightFormat::f32;
  bool causal = false;
};

std::shared_ptr<MqaBenchValues> add_mqa_bench_options(CLI::App& command);

/// What it shares with the bench of a layer.
struct MqaBenchRequest {
  MqaBenchValues values;
  std::vector<std::int64_t> rows;
  Backend backend = Backend::automatic;
  MqaLogitsOptions cpu;
  std::int64_t warm_up = 2;
  std::int64_t calls = 9;
  std::string json;  ///< file for the records; empty: none
};

/// Prints a table, one line for each number of rows. Throws Error{unsupported} for the cuda backend
/// where there is none, and what the call throws.
int bench_mqa_logits(const MqaBenchRequest& request);

}  // namespace megamoe::cli
