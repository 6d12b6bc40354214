// The options that say which layer, input, ranks and workers: the same for every command that runs
// one.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/layer_source.hpp"
#include "cli/rank_run.hpp"

namespace megamoe::cli {

/// What the options of a command came to.
struct LayerOptionValues {
  LayerRequest layer;
  LayerOptions plan;
  double timeout_s = 30;

  std::chrono::nanoseconds deadline() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_s * 1e9));
  }
};

/// Adds the options to a sub-command; the values are there once it is parsed.
std::shared_ptr<LayerOptionValues> add_layer_options(CLI::App& command);

}  // namespace megamoe::cli
