#include "api/cuda_layer.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "api/layer_identity.hpp"
#include "api/packed_file.hpp"
#include "base/check.hpp"
#include "numerics/recipe.hpp"
#include "routing/slots.hpp"
#include "sm90/prepare.hpp"

namespace megamoe {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A call takes some hundred microseconds: asking for its end without a pause for longer than that
// takes a core from others and gains nothing.
constexpr auto kSpin = std::chrono::milliseconds(1);
constexpr auto kPause = std::chrono::microseconds(20);

CudaPlan agreed_plan(const LayerConfig& config, const Group& group, const LayerOptions& options) {
  GroupState& state = group.state();
  return agreed_step(state.communicator(), "making a layer", [&] {
    return plan_cuda_layer(config, group.ranks(), options, state.gpu()->share_of_multiprocessors());
  });
}

device::StreamHandle handle(void* stream) {
  return static_cast<device::StreamHandle>(stream);
}

}  // namespace

std::unique_ptr<LayerState> make_cuda_layer(const LayerConfig& config, const WeightSource& source,
                                            const Group& group, const LayerOptions& options) {
  return std::make_unique<CudaLayer>(config, source, group, options);
}

CudaLayer::CudaLayer(const LayerConfig& config, const WeightSource& source, const Group& group,
                     const LayerOptions& options)
    : group_(group), plan_(agreed_plan(config, group, options)) {
  Communicator& communicator = group_.state().communicator();
  compare_identities(communicator, config,
                     {.kernels = "cuda sm90", .arena_bytes = plan_.arena.bytes});
  arena_ = gpu().arena(plan_.shape);
  const std::uint32_t ordinal = group_.state().next_layer();
  layer_ = agreed_step(communicator, "packing weights", [&] {
    if (source.shared != nullptr) check_shared_experts(*source.shared, description());
    const device::CurrentDevice current = gpu().use();
    auto layer = std::make_unique<sm90::DeviceLayer>(
        config,
        sm90::DeviceLayerOptions{.rank = group_.rank(),
                                 .arenas = arena_->bases(group_.ranks()),
                                 .multiprocessors = static_cast<int>(plan_.machine.multiprocessors),
                                 .blocks = static_cast<int>(plan_.machine.blocks),
                                 .deadline = communicator.deadline(),
                                 .layer = ordinal,
                                 .weights = source.shared ? source.shared->tiles : nullptr});
    if (source.weights != nullptr) {
      layer->refresh(*source.weights);
    } else if (source.packed != nullptr) {
      load_packed_pieces(*source.packed, plan_.shape, group_.rank(), *layer);
    }
    events_ = std::make_shared<CallEvents>();
    return layer;
  });
}

CudaLayer::~CudaLayer() {
  // Freeing the weights waits for calls that read them.
  const device::CurrentDevice current = gpu().use();
  layer_.reset();
}

Batch CudaLayer::batch(std::int64_t tokens) const {
  check_tokens(plan_.config, tokens, group_.rank());
  const LayerConfig& config = plan_.config;
  const sm90::GpuBatch gpu_batch = layer_->batch();
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Batch batch;
  batch.tokens = tokens;
  batch.x = {gpu_batch.x, size(tokens * config.hidden)};
  batch.x_scales = {gpu_batch.x_scales,
                    size(tokens * x_scale_row_bytes(config.recipe, config.hidden))};
  batch.experts = {gpu_batch.experts, size(tokens * config.top_k)};
  batch.weights = {gpu_batch.weights, size(tokens * config.top_k)};
  return batch;
}

void CudaLayer::check(const LayerCall& call, std::int64_t rows) const {
  check_call(plan_.config, batch(call.batch.tokens), call, rows);
  gpu().check_usable();
}

template <class Give>
void CudaLayer::call(std::int64_t tokens, void* stream, const Give& give) {
  // What is captured runs when the caller replays it: no order and no end of it is known here.
  if (device::is_capturing(handle(stream))) return give();
  gpu().begin_call(events_, handle(stream));
  give();
  gpu().end_call(events_, handle(stream));
  pending_ = true;
  tokens_ = tokens;
}

void CudaLayer::enqueue(const LayerCall& call, const StreamCall& where) {
  const bool counted = where.tokens != nullptr;
  check(call, counted ? plan_.config.max_tokens : call.batch.tokens);
  const device::CurrentDevice current = gpu().use();
  this->call(call.batch.tokens, where.stream, [&] {
    layer_->enqueue({.tokens = call.batch.tokens,
                     .tokens_word = where.tokens,
                     .x_bf16 = call.batch.x_bf16.data(),
                     .y = call.y.data(),
                     .overrides = plan_.overrides_of(call.execution)},
                    where.stream);
  });
}

void CudaLayer::forward(const LayerCall& call) {
  {
    const device::CurrentDevice current = gpu().use();
    gpu().follow_default_stream();
  }
  enqueue(call, {.stream = gpu().stream()});
  wait();
}

void CudaLayer::wait() {
  const device::CurrentDevice current = gpu().use();
  const auto deadline = group_.state().communicator().deadline();
  const auto begin = SteadyClock::now();
  while (pending_ && !events_->end.over()) {
    const auto waited = SteadyClock::now() - begin;
    if (waited > kSpin) std::this_thread::sleep_for(kPause);
    // The kernel itself gives up at the deadline, if it runs.
    if (deadline.count() == 0 || waited <= 2 * deadline) continue;
    const Error error(
        ErrorCode::deadline,
        fmt::format("rank {}: a call on CUDA device {} has not ended within twice the deadline: "
                    "other work holds the multiprocessors that its {} thread blocks need, or the "
                    "stream waits for something else",
                    group_.rank(), gpu().member().device(), plan_.machine.blocks));
    gpu().give_up(error);
    throw error;
  }
  reported_ = reported_ && !pending_;
  pending_ = false;
  check_faults();
}

bool CudaLayer::poll() {
  {
    const device::CurrentDevice current = gpu().use();
    if (pending_ && !events_->end.over()) return false;
  }
  wait();
  return true;
}

void CudaLayer::check_faults() {
  gpu().check_usable();
  try {
    layer_->check();
  } catch (const Error& error) {
    // A bad id is the call's alone; everything else ends the group.
    if (error.code() != ErrorCode::invalid_argument) gpu().give_up(error);
    throw;
  }
}

/// One captured call whose number of tokens is a word of device memory.
class CudaGraph final : public GraphState {
 public:
  CudaGraph(CudaLayer& layer, const GraphOptions& options)
      : layer_(layer), word_(sizeof(std::int32_t), "the number of tokens of a graph") {
    const LayerConfig& config = layer.config();
    const device::Stream stream;
    graph_.emplace(stream, [&] {
      layer_.layer_->enqueue({.tokens = config.max_tokens,
                              .tokens_word = word_.as<std::int32_t>(),
                              .y = options.y.data(),
                              .overrides = layer_.plan_.overrides_of(options.execution)},
                             stream.get());
    });
  }

  void replay(std::int64_t tokens) override {
    {
      const device::CurrentDevice current = layer_.gpu().use();
      layer_.gpu().follow_default_stream();
    }
    replay(tokens, layer_.gpu().stream());
    layer_.wait();
  }

  void replay(std::int64_t tokens, void* stream) override {
    check_tokens(layer_.config(), tokens, layer_.group_.rank());
    layer_.gpu().check_usable();
    const device::CurrentDevice current = layer_.gpu().use();
    layer_.call(tokens, stream, [&] {
      sm90::launch_store_tokens(word_.as<std::int32_t>(), tokens, stream);
      graph_->launch(handle(stream));
    });
  }

 private:
  CudaLayer& layer_;
  device::Memory word_;
  std::optional<device::Graph> graph_;
};

std::shared_ptr<GraphState> CudaLayer::graph(const GraphOptions& options) {
  const device::CurrentDevice current = gpu().use();
  return std::make_shared<CudaGraph>(*this, options);
}

void CudaLayer::refresh(const LayerWeights& weights) {
  wait();
  const device::CurrentDevice current = gpu().use();
  layer_->refresh(weights);
}

void CudaLayer::save_packed(const std::filesystem::path& file) {
  const device::CurrentDevice current = gpu().use();
  save_packed_pieces(file, plan_.shape, group_.rank(), layer_->packed());
}

std::string CudaLayer::description() const {
  return fmt::format("{} on CUDA device {}",
                     packed_description(plan_.shape, group_.rank(), kTilesForm),
                     gpu().member().device());
}

PackedState CudaLayer::packed_experts() const {
  return {.description = description(), .strips = nullptr, .tiles = layer_->weights()};
}

std::string CudaLayer::explain() const {
  const GpuMember& member = gpu().member();
  std::string text = plan_.explain();
  text += fmt::format("{:<14}{}, of {} ranks on it; ranks reach each other by {}\n", "device",
                      member.device(), member.sharers(), member.way());
  if (layer_->rounded_weights() > 0) {
    text += fmt::format(
        "{:<14}{} weights are too small against their row's largest and were "
        "rounded\n",
        "rounded", layer_->rounded_weights());
  }
  return text;
}

const CallReport& CudaLayer::report() const {
  if (!reported_) {
    const device::CurrentDevice current = gpu().use();
    fill_report();
    reported_ = true;
  }
  return report_;
}

void CudaLayer::fill_report() const {
  const LayerConfig& config = plan_.config;
  report_ = {};
  report_.tokens = tokens_;
  report_.total_ns =
      static_cast<std::int64_t>(events_->end.microseconds_since(events_->begin) * 1e3);
  report_.rows_per_expert = layer_->rows_per_expert();
  report_.rows_per_expert.resize(
      report_.rows_per_expert.size() + static_cast<std::size_t>(config.shared_experts), tokens_);
  std::int64_t rows = 0;
  for (const std::int64_t count : report_.rows_per_expert) {
    rows += count;
    if (count > 0) report_.weight_bytes += plan_.expert_bytes;
  }
  report_.pulled_bytes = rows * (config.hidden + x_scale_row_bytes(config.recipe, config.hidden));
  report_.flops = 6 * config.hidden * config.intermediate * rows;
  report_.pushed_bytes = rows * config.hidden * 2;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens_ * config.top_k));
  const device::Stream reading;
  reading.copy(ids.data(), layer_->batch().experts, static_cast<std::int64_t>(ids.size() * 8));
  reading.wait();
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    const auto in_list = static_cast<std::int64_t>(slot) % config.top_k;
    const SlotList list{&ids[slot] - in_list, nullptr, config.top_k, config.experts};
    if (is_route(list, in_list)) ++report_.routes;
  }
}

}  // namespace megamoe
