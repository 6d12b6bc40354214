// Where the command's layer and its input come from: a checkpoint or a seed, a file or a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megamoe/checkpoint.hpp"
#include "megamoe/types.hpp"

#include "cli/synthetic.hpp"

namespace megamoe::cli {

enum class ActivationFormat { bf16, fp8 };

/// What the user asked for; absent means: the checkpoint's or the preset's.
struct LayerRequest {
  std::string checkpoint;  ///< a folder; empty: a layer from the seed
  std::int64_t layer = 0;
  std::string preset = "demo";
  std::uint64_t seed = 1;
  std::optional<std::int64_t> hidden, intermediate, experts, top_k;
  std::optional<Recipe> recipe;
  std::optional<ActivationFormat> activations;
  bool shared_experts = true;
  std::string input;  ///< a safetensors file with hidden_states [T, H]; empty: from the seed
  std::optional<std::int64_t> tokens;  ///< per rank, without an input file
  std::int64_t ranks = 4;
};

/// A preset of the command line by name: a shape that people know. Throws Error{invalid_argument}
/// that lists them.
LayerConfig preset(const std::string& name);

/// The recipe for a format of weights and of activations.
Recipe recipe_for(WeightFormat weights, ActivationFormat activations);

/// The layer and every rank's tokens. Made once in the parent; forked children share it.
class LayerSource {
 public:
  explicit LayerSource(const LayerRequest& request);

  const LayerConfig& config() const { return config_; }
  /// "deepseek_v3 layer 3 of DIR" or "demo layer from seed 1".
  const std::string& description() const { return description_; }

  /// What of a checkpoint's weights is not kept as it is stored, in words; "" if all is.
  std::string note() const { return checkpoint_ ? checkpoint_->note : ""; }

  std::int64_t ranks() const { return request_.ranks; }
  std::int64_t tokens(std::int64_t rank) const;
  std::int64_t total_tokens() const;
  /// x, ids and weights of a rank's tokens. turn: another input for each, where they are made from
  /// the seed; those of a file are always the same.
  SyntheticInput input(std::int64_t rank, std::int64_t turn = 0) const;

  /// Weights that hold at least the experts of `rank`; all experts for rank -1.
  LayerWeights weights(std::int64_t rank) const;

  /// Bytes that weights() of the first rank, which has most, takes of memory; 0 for a checkpoint,
  /// whose files are mapped.
  std::int64_t made_bytes() const;

 private:
  void open_checkpoint();
  void open_preset();
  void read_input();

  LayerRequest request_;
  LayerConfig config_;
  std::string description_;
  std::optional<CheckpointLayer> checkpoint_;
  std::vector<BFloat16> hidden_states_;  ///< of the input file: [total, hidden]
};

}  // namespace megamoe::cli
