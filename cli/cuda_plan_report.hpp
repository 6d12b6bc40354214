// What `plan` says of a layer on CUDA devices.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/layer_options.hpp"

namespace megamoe::cli {

/// Prints plan, memory and the bound of a call; needs no device. Returns the same as a document.
nlohmann::json report_cuda_plan(const LayerSource& source, const LayerOptions& options,
                                const GivenRates& given);

}  // namespace megamoe::cli
