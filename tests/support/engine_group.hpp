// Ranks as threads, each with an engine over the same synthetic layer: what most tests of the
// engine run on.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megamoe/types.hpp"

#include "cli/synthetic.hpp"
#include "cpu/engine.hpp"
#include "plan/plan.hpp"

namespace megamoe::test {

using Input = cli::SyntheticInput;

struct GroupSpec {
  LayerConfig config;
  int ranks = 2;
  PlanOverrides plan;
  InstructionSet instruction_set = best_instruction_set();
  std::uint64_t seed = 7;
  std::chrono::nanoseconds deadline = std::chrono::seconds(120);
  /// Called by workers of rank `rank`; may be empty.
  std::function<void(int rank, EnginePhase phase, std::int64_t worker)> hook;
};

/// y of each rank, and the exception of each that threw.
struct GroupResult {
  std::vector<std::vector<BFloat16>> y;
  std::vector<std::exception_ptr> errors;
  std::vector<CallReport> reports;

  /// Rethrows the first error, if any.
  void check() const;
  /// The message of a rank's error; "" if it had none.
  std::string message(int rank) const;
};

class EngineGroup {
 public:
  explicit EngineGroup(const GroupSpec& spec);
  ~EngineGroup();

  const LayerConfig& config() const { return spec_.config; }
  const LayerWeights& weights() const { return weights_; }
  int ranks() const { return spec_.ranks; }

  /// Random tokens of one rank; different for every `call_seed`.
  Input input(int rank, std::int64_t tokens, std::uint64_t call_seed = 0) const;

  /// The same for every rank.
  std::vector<Input> inputs(const std::vector<std::int64_t>& tokens,
                            std::uint64_t call_seed = 0) const;

  /// One call on all ranks at once, with x brought as bf16.
  GroupResult call(const std::vector<Input>& inputs, Execution execution);

  /// Fills every data region of every arena with 0xFF: NaN in all formats, ids of -1.
  void poison();

  /// The f64 reference for one rank's input.
  std::vector<float> reference(const Input& input) const;

  /// "" if every rank's y is as near to the reference as the contract asks, else which is not.
  std::string compare_with_reference(const std::vector<Input>& inputs,
                                     const GroupResult& result) const;

  Arena& arena(int rank);

 private:
  struct Rank;
  GroupSpec spec_;
  LayerWeights weights_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

inline constexpr Execution kExecutions[] = {Execution::fused, Execution::split, Execution::staged};

/// A small layer: sizes that are no multiples of 128, nor E of R.
LayerConfig small_config(Recipe recipe = Recipe::fp8_fp4);

std::vector<float> as_floats(const std::vector<BFloat16>& values);

/// "" if equal bit for bit, else the first coordinate that differs, with both values.
std::string difference(const std::vector<BFloat16>& a, const std::vector<BFloat16>& b,
                       std::int64_t hidden);

/// "" if all ranks' y are equal bit for bit, else the first rank and coordinate that differ.
std::string difference(const GroupResult& a, const GroupResult& b, std::int64_t hidden);

/// The tolerance of the contract for a recipe.
double tolerance(Recipe recipe);

}  // namespace megamoe::test
