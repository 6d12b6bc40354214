#include "megamoe/layer.hpp"

#include "api/layer_state.hpp"
#include "base/check.hpp"
#include "base/names.hpp"
#include "cpu/convert.hpp"

namespace megamoe {
namespace {

std::unique_ptr<LayerState> make_layer(const LayerConfig& config, const WeightSource& source,
                                       const Group& group, const LayerOptions& options) {
  return group.backend() == Backend::cuda ? make_cuda_layer(config, source, group, options)
                                          : make_cpu_layer(config, source, group, options);
}

}  // namespace

void check_tokens(const LayerConfig& config, std::int64_t tokens, int rank) {
  check_argument(
      tokens >= 0 && tokens <= config.max_tokens,
      "a batch of {} tokens at rank {}: 0 to max_tokens = {} are wanted; make the layer with a "
      "larger max_tokens, or call it several times",
      tokens, rank, config.max_tokens);
}

void check_call(const LayerConfig& config, const Batch& own, const LayerCall& call,
                std::int64_t rows) {
  name_of(call.execution);  // refuses what is no execution
  check_argument(call.batch.experts.data() == own.experts.data(),
                 "the batch is not of this layer: fill and pass what Layer::batch returned");
  const auto values = static_cast<std::size_t>(rows * config.hidden);
  check_argument(call.batch.x_bf16.data() == nullptr || call.batch.x_bf16.size() == values,
                 "x_bf16 has {} values: {} tokens of {} are {}", call.batch.x_bf16.size(), rows,
                 config.hidden, values);
  check_argument(call.y.size() == values, "y has {} values: {} tokens of {} are {}", call.y.size(),
                 rows, config.hidden, values);
}

std::string memory_ran_out(std::string_view what) {
  return fmt::format("memory ran out in {}: free some, or raise the limit (ulimit -v)", what);
}

Layer::Layer(const LayerConfig& config, const LayerWeights& weights, const Group& group,
             const LayerOptions& options)
    : state_(make_layer(config, {.weights = &weights}, group, options)) {}

Layer::Layer(const LayerConfig& config, const std::filesystem::path& packed, const Group& group,
             const LayerOptions& options)
    : state_(make_layer(config, {.packed = &packed}, group, options)) {}

Layer::Layer(const LayerConfig& config, const PackedExperts& packed, const Group& group,
             const LayerOptions& options)
    : state_(make_layer(config, {.shared = packed.state_.get()}, group, options)) {}

Layer::Layer(Layer&&) noexcept = default;
Layer& Layer::operator=(Layer&&) noexcept = default;
Layer::~Layer() = default;

Batch Layer::batch(std::int64_t tokens) const {
  return state_->batch(tokens);
}

void Layer::forward(const Batch& batch, std::span<BFloat16> y, Execution execution) {
  state_->forward({batch, y, execution});
}

void Layer::forward(const Batch& batch, std::span<BFloat16> y, void* stream, Execution execution) {
  state_->enqueue({batch, y, execution}, {.stream = stream});
}

void Layer::forward_counted(const std::int32_t* tokens, const Batch& batch, std::span<BFloat16> y,
                            void* stream, Execution execution) {
  check_argument(tokens != nullptr,
                 "tokens is null: a word of device memory with the number of tokens is wanted");
  state_->enqueue({batch, y, execution}, {.stream = stream, .tokens = tokens});
}

void Layer::wait() {
  state_->wait();
}

bool Layer::poll() {
  return state_->poll();
}

Graph Layer::graph(const GraphOptions& options) {
  const LayerConfig& config = this->config();
  name_of(options.execution);
  check_argument(static_cast<std::int64_t>(options.y.size()) == config.max_tokens * config.hidden,
                 "y of a graph has {} values: max_tokens {} of {} are wanted", options.y.size(),
                 config.max_tokens, config.hidden);
  return Graph(state_->graph(options));
}

void Graph::replay(std::int64_t tokens) {
  state_->replay(tokens);
}

void Graph::replay(std::int64_t tokens, void* stream) {
  state_->replay(tokens, stream);
}

void Layer::refresh(const LayerWeights& weights) {
  state_->refresh(weights);
}

PackedExperts Layer::packed_experts() const {
  return PackedExperts(std::make_shared<const PackedState>(state_->packed_experts()));
}

void Layer::save_packed(const std::filesystem::path& file) const {
  state_->save_packed(file);
}

const LayerConfig& Layer::config() const {
  return state_->config();
}
std::string Layer::explain() const {
  return state_->explain();
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
