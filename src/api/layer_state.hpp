// What a Layer is on one backend: one rank's plan, packed weights and arena.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "megamoe/layer.hpp"

#include "api/group_state.hpp"

namespace megamoe {

namespace sm90 {
struct RankWeights;
}

/// A call as Layer's functions hand it on.
struct LayerCall {
  const Batch& batch;
  std::span<BFloat16> y;
  Execution execution = Execution::fused;
};

/// Where a call of a CUDA layer goes.
struct StreamCall {
  void* stream = nullptr;
  const std::int32_t* tokens = nullptr;  ///< device memory; null: the batch's number
};

class GraphState {
 public:
  virtual ~GraphState() = default;
  virtual void replay(std::int64_t tokens) = 0;
  virtual void replay(std::int64_t tokens, void* stream) = 0;
};

class PackedWeights;

/// A rank's packed experts in the form of one backend, and what they were packed for.
struct PackedState {
  std::string description;
  std::shared_ptr<PackedWeights> strips;       ///< of the CPU's kernels, or null
  std::shared_ptr<sm90::RankWeights> tiles{};  ///< of Hopper's, or null
};

/// Throws Error{mismatch} unless the experts are what a layer wants that describes its own so.
void check_shared_experts(const PackedState& packed, const std::string& wanted);

/// Contracts as in Layer.
class LayerState {
 public:
  virtual ~LayerState() = default;
  virtual const LayerConfig& config() const = 0;
  virtual Batch batch(std::int64_t tokens) const = 0;
  virtual void forward(const LayerCall& call) = 0;
  virtual void enqueue(const LayerCall& call, const StreamCall& where) = 0;
  virtual void wait() = 0;
  virtual bool poll() = 0;
  virtual std::shared_ptr<GraphState> graph(const GraphOptions& options) = 0;
  virtual void refresh(const LayerWeights& weights) = 0;
  virtual PackedState packed_experts() const = 0;
  virtual void save_packed(const std::filesystem::path& file) = 0;
  virtual std::string explain() const = 0;
  virtual const CallReport& report() const = 0;
};

/// Where a layer's weights come from: one of the three.
struct WeightSource {
  const LayerWeights* weights = nullptr;
  const std::filesystem::path* packed = nullptr;
  const PackedState* shared = nullptr;
};

/// Collective, as the constructors of Layer.
std::unique_ptr<LayerState> make_cpu_layer(const LayerConfig& config, const WeightSource& source,
                                           const Group& group, const LayerOptions& options);
std::unique_ptr<LayerState> make_cuda_layer(const LayerConfig& config, const WeightSource& source,
                                            const Group& group, const LayerOptions& options);

/// What every backend asks of a batch and a y: that they are of this layer and of the right sizes.
/// `rows`: of y and x_bf16.
void check_call(const LayerConfig& config, const Batch& own, const LayerCall& call,
                std::int64_t rows);
/// Throws unless 0 to max_tokens tokens are asked for.
void check_tokens(const LayerConfig& config, std::int64_t tokens, int rank);

std::string memory_ran_out(std::string_view what);

/// Runs a local step of a collective construction; if it fails at any rank, every rank throws.
template <class Step>
auto agreed_step(Communicator& communicator, std::string_view what, const Step& step) {
  std::optional<decltype(step())> result;
  std::exception_ptr own;
  std::string failure;
  try {
    result.emplace(step());
  } catch (const std::bad_alloc&) {
    failure = memory_ran_out(what);
    own = std::make_exception_ptr(Error(ErrorCode::out_of_memory, failure));
  } catch (const std::exception& error) {
    own = std::current_exception();
    failure = error.what();
  }
  try {
    agree_on_success(communicator, failure, what);
  } catch (const Error&) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  return std::move(*result);
}

}  // namespace megamoe
