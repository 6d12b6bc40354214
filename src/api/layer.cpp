#include "megamoe/layer.hpp"

#include <array>
#include <optional>
#include <utility>

#include "api/group_state.hpp"
#include "api/layer_identity.hpp"
#include "api/layer_plan.hpp"
#include "api/packed_file.hpp"
#include "base/check.hpp"
#include "base/names.hpp"
#include "cpu/convert.hpp"
#include "cpu/engine.hpp"
#include "plan/plan.hpp"

namespace megamoe {
namespace {

/// Runs a local step of a collective construction; if it fails at any rank, every rank throws.
template <class Step>
auto agreed_step(Communicator& communicator, std::string_view what, const Step& step) {
  std::optional<decltype(step())> result;
  std::exception_ptr own;
  std::string failure;
  try {
    result.emplace(step());
  } catch (const std::bad_alloc&) {
    failure = fmt::format("memory ran out in {}: free some, or raise the limit (ulimit -v)", what);
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

Plan agreed_plan(const LayerConfig& config, const Group& group, const LayerOptions& options) {
  Communicator& communicator = group.state().communicator();
  const std::int64_t cores = share_cores(communicator);
  return agreed_step(communicator, "making a layer",
                     [&] { return plan_layer(config, group.ranks(), options, cores); });
}

}  // namespace

class LayerState {
 public:
  template <class Fill>
  LayerState(const LayerConfig& config, const Group& group, const LayerOptions& options,
             const Fill& fill)
      : group_(group), plan_(agreed_plan(config, group, options)) {
    compare_identities(communicator(), plan_);
    check_private_memory(communicator(), packed_matrix_bytes(plan_.shape), "packed weights",
                         "take fewer or smaller experts, a recipe with smaller weights, or free "
                         "memory");
    weights_ = agreed_step(communicator(), "packing weights", [&] {
      auto weights = std::make_unique<PackedWeights>(plan_.shape);
      fill(*weights, plan_);
      return weights;
    });
    arena_ = group_.state().arena(plan_.shape);
    check_private_memory(communicator(), Engine::scratch_bytes(plan_), "the workers' scratch",
                         "take fewer workers, or free memory");
    const std::uint32_t ordinal = group_.state().next_layer();
    agreed_step(communicator(), "starting workers", [&] {
      return &engine_.emplace(plan_, arena_, group_.state().pool(plan_.threads()), *weights_,
                              ordinal);
    });
  }

  Communicator& communicator() const { return group_.state().communicator(); }
  const Plan& plan() const { return plan_; }
  PackedWeights& weights() { return *weights_; }
  int rank() const { return group_.rank(); }

  Batch batch(std::int64_t tokens) const;
  void forward(const Batch& batch, std::span<BFloat16> y, Execution execution);
  const CallReport& report() const { return engine_->report(); }

 private:
  Group group_;
  Plan plan_;
  std::unique_ptr<PackedWeights> weights_;
  std::shared_ptr<Arena> arena_;
  std::optional<Engine> engine_;
};

Batch LayerState::batch(std::int64_t tokens) const {
  const LayerConfig& config = plan_.config;
  check_argument(
      tokens >= 0 && tokens <= config.max_tokens,
      "a batch of {} tokens at rank {}: 0 to max_tokens = {} are wanted; make the layer with a "
      "larger max_tokens, or call it several times",
      tokens, rank(), config.max_tokens);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Batch batch;
  batch.tokens = tokens;
  batch.x = {arena_->mine<std::byte>(RegionId::x),
             size(tokens * x_row_bytes(config.recipe, config.hidden))};
  batch.x_scales = {arena_->mine<std::byte>(RegionId::x_scales),
                    size(tokens * x_scale_row_bytes(config.recipe, config.hidden))};
  batch.experts = {arena_->mine<std::int64_t>(RegionId::expert_ids), size(tokens * config.top_k)};
  batch.weights = {arena_->mine<float>(RegionId::expert_weights), size(tokens * config.top_k)};
  return batch;
}

void LayerState::forward(const Batch& batch, std::span<BFloat16> y, Execution execution) {
  const LayerConfig& config = plan_.config;
  name_of(execution);  // refuses what is no execution
  const Batch own = this->batch(batch.tokens);
  check_argument(batch.experts.data() == own.experts.data(),
                 "the batch is not of this layer: fill and pass what Layer::batch returned");
  const auto values = static_cast<std::size_t>(batch.tokens * config.hidden);
  check_argument(batch.x_bf16.data() == nullptr || batch.x_bf16.size() == values,
                 "x_bf16 has {} values: {} tokens of {} are {}", batch.x_bf16.size(), batch.tokens,
                 config.hidden, values);
  check_argument(y.size() == values, "y has {} values: {} tokens of {} are {}", y.size(),
                 batch.tokens, config.hidden, values);
  engine_->forward({.tokens = batch.tokens,
                    .x_bf16 = batch.x_bf16.data(),
                    .y = y.data(),
                    .execution = execution});
}

Layer::Layer(const LayerConfig& config, const LayerWeights& weights, const Group& group,
             const LayerOptions& options)
    : state_(std::make_unique<LayerState>(
          config, group, options,
          [&](PackedWeights& packed, const Plan&) { packed.pack(weights, group.rank()); })) {}

Layer::Layer(const LayerConfig& config, const std::filesystem::path& packed, const Group& group,
             const LayerOptions& options)
    : state_(std::make_unique<LayerState>(config, group, options,
                                          [&](PackedWeights& into, const Plan& plan) {
                                            load_packed_file(packed, plan, group.rank(), into);
                                          })) {}

Layer::Layer(Layer&&) noexcept = default;
Layer& Layer::operator=(Layer&&) noexcept = default;
Layer::~Layer() = default;

Batch Layer::batch(std::int64_t tokens) const {
  return state_->batch(tokens);
}

void Layer::forward(const Batch& batch, std::span<BFloat16> y, Execution execution) {
  state_->forward(batch, y, execution);
}

Graph Layer::graph(const GraphOptions& options) {
  const LayerConfig& config = state_->plan().config;
  check_argument(static_cast<std::int64_t>(options.y.size()) == config.max_tokens * config.hidden,
                 "y of a graph has {} values: max_tokens {} of {} are wanted", options.y.size(),
                 config.max_tokens, config.hidden);
  return Graph(*state_, options);
}

void Graph::replay(std::int64_t tokens) {
  const Batch batch = layer_->batch(tokens);
  const std::int64_t hidden = layer_->plan().config.hidden;
  layer_->forward(batch, options_.y.first(static_cast<std::size_t>(tokens * hidden)),
                  options_.execution);
}

void Layer::refresh(const LayerWeights& weights) {
  state_->weights().pack(weights, state_->rank());
}

void Layer::save_packed(const std::filesystem::path& file) const {
  save_packed_file(file, state_->plan(), state_->rank(), state_->weights());
}

const LayerConfig& Layer::config() const {
  return state_->plan().config;
}
std::string Layer::explain() const {
  return state_->plan().explain();
}
const CallReport& Layer::report() const {
  return state_->report();
}

void convert_x(Recipe recipe, std::int64_t hidden, std::span<const BFloat16> x,
               std::span<std::byte> values, std::span<std::byte> scales) {
  check_argument(hidden >= 1 && static_cast<std::int64_t>(x.size()) % hidden == 0,
                 "x has {} values: whole rows of {} are wanted", x.size(), hidden);
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / hidden;
  const std::int64_t row_bytes = x_row_bytes(recipe, hidden);
  const std::int64_t scale_bytes = x_scale_row_bytes(recipe, hidden);
  check_argument(static_cast<std::int64_t>(values.size()) == tokens * row_bytes &&
                     static_cast<std::int64_t>(scales.size()) == tokens * scale_bytes,
                 "values have {} bytes and scales {}: {} and {} are wanted for {} tokens",
                 values.size(), scales.size(), tokens * row_bytes, tokens * scale_bytes, tokens);
  for (std::int64_t t = 0; t < tokens; ++t) {
    convert_x_row(recipe, hidden, x.data() + t * hidden, values.data() + t * row_bytes,
                  scales.data() + t * scale_bytes);
  }
}

const char* version() {
  return MEGAMOE_VERSION;
}

}  // namespace megamoe
