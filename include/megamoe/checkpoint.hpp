// One mixture-of-experts layer out of a checkpoint folder as Hugging Face and the model authors
// publish it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "megamoe/router.hpp"
#include "megamoe/types.hpp"
#include "megamoe/weights.hpp"

namespace megamoe {

/// What a checkpoint says about one layer. `config.max_tokens` is 0: the caller sets it.
struct CheckpointLayer {
  std::string family;  ///< "mixtral", "qwen3_moe", "gpt_oss", ...
  LayerConfig config;  ///< with the recipe and shared_weights that keep the weights as they are,
                       ///< and bf16 activations
  RouterConfig router;
  LayerWeights weights;  ///< views into the mapped files; `owner` keeps them mapped
  std::string note;      ///< what could not be kept as it is stored, in words; "" if all was
};

/// Reads config.json and model.safetensors (or the shards that model.safetensors.index.json names)
/// in `directory`. Throws Error{format} that names the file, tensor or key for anything broken or
/// not understood, Error{io} when the system refuses, Error{unsupported} for what is understood but
/// not run.
CheckpointLayer load_layer(const std::filesystem::path& directory, std::int64_t layer);

}  // namespace megamoe
