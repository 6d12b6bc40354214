// A layer of a rank on the CPU.
#include <optional>
#include <utility>

#include "api/layer_identity.hpp"
#include "api/layer_plan.hpp"
#include "api/layer_state.hpp"
#include "api/packed_file.hpp"
#include "base/check.hpp"
#include "base/names.hpp"
#include "cpu/engine.hpp"
#include "numerics/recipe.hpp"
#include "topology/binding.hpp"
#include "topology/placement.hpp"

namespace megamoe {
namespace {

Plan agreed_plan(const LayerConfig& config, const Group& group, const LayerOptions& options,
                 std::int64_t cores) {
  return agreed_step(group.state().communicator(), "making a layer",
                     [&] { return plan_layer(config, group.ranks(), options, cores); });
}

[[noreturn]] void refuse_stream() {
  fail(ErrorCode::unsupported,
       "a stream is given, but the group runs on CPUs: leave it out, or make the group with "
       "Group::devices");
}

class CpuLayer;

/// Execution and y of a call that is made again and again.
class CpuGraph final : public GraphState {
 public:
  CpuGraph(CpuLayer& layer, const GraphOptions& options) : layer_(layer), options_(options) {}
  void replay(std::int64_t tokens) override;
  void replay(std::int64_t, void*) override { refuse_stream(); }

 private:
  CpuLayer& layer_;
  GraphOptions options_;
};

class CpuLayer final : public LayerState {
 public:
  CpuLayer(const LayerConfig& config, const WeightSource& source, const Group& group,
           const LayerOptions& options);

  const LayerConfig& config() const override { return plan_.config; }
  Batch batch(std::int64_t tokens) const override;
  void forward(const LayerCall& call) override;
  void enqueue(const LayerCall&, const StreamCall&) override { refuse_stream(); }
  void wait() override {}
  bool poll() override { return true; }
  std::shared_ptr<GraphState> graph(const GraphOptions& options) override {
    return std::make_shared<CpuGraph>(*this, options);
  }
  void refresh(const LayerWeights& weights) override {
    const ThreadBinding binding(binding_.threads);
    weights_->pack(weights, group_.rank());
  }
  PackedState packed_experts() const override {
    return {.description = packed_description(plan_.shape, group_.rank(), kStripsForm),
            .strips = weights_};
  }
  void save_packed(const std::filesystem::path& file) override {
    save_packed_file(file, plan_, group_.rank(), *weights_);
  }
  std::string explain() const override;
  const CallReport& report() const override { return engine_->report(); }

 private:
  std::shared_ptr<PackedWeights> own_weights(const WeightSource& source);
  Communicator& communicator() const { return group_.state().communicator(); }
  /// Before the memory is touched.
  void place(std::span<std::byte> memory);

  Group group_;
  RankPlace place_;
  Plan plan_;
  RankBinding binding_;
  bool memory_refused_ = false;
  std::shared_ptr<PackedWeights> weights_;
  std::shared_ptr<Arena> arena_;
  std::optional<Engine> engine_;
};

CpuLayer::CpuLayer(const LayerConfig& config, const WeightSource& source, const Group& group,
                   const LayerOptions& options)
    : group_(group),
      place_(share_cores(communicator())),
      plan_(agreed_plan(config, group, options, place_.share)),
      binding_(bind_rank(host_topology(), place_, options.bind_threads)) {
  // The workers inherit it, and what is touched here lies near them.
  const ThreadBinding binding(binding_.threads);
  compare_identities(communicator(), config,
                     {.kernels = fmt::format("cpu {}", name_of(plan_.machine.instruction_set)),
                      .arena_bytes = plan_.arena.bytes});
  const std::int64_t new_bytes = source.shared != nullptr ? 0 : packed_matrix_bytes(plan_.shape);
  check_private_memory(communicator(), new_bytes, "packed weights",
                       "take fewer or smaller experts, a recipe with smaller weights, or free "
                       "memory");
  weights_ = agreed_step(communicator(), "packing weights", [&] { return own_weights(source); });
  arena_ = group_.state().arena(plan_.shape);
  place(arena_->part());
  check_private_memory(communicator(), Engine::scratch_bytes(plan_), "the workers' scratch",
                       "take fewer workers, or free memory");
  const std::uint32_t ordinal = group_.state().next_layer();
  agreed_step(communicator(), "starting workers", [&] {
    return &engine_.emplace(plan_, arena_, group_.state().pool(plan_.threads(), binding_.threads),
                            *weights_, ordinal);
  });
}

std::shared_ptr<PackedWeights> CpuLayer::own_weights(const WeightSource& source) {
  if (source.shared != nullptr) {
    check_shared_experts(*source.shared,
                         packed_description(plan_.shape, group_.rank(), kStripsForm));
    return source.shared->strips;
  }
  auto weights = std::make_shared<PackedWeights>(plan_.shape);
  place(weights->strips());
  if (source.weights != nullptr) {
    weights->pack(*source.weights, group_.rank());
  } else {
    load_packed_file(*source.packed, plan_, group_.rank(), *weights);
  }
  return weights;
}

void CpuLayer::place(std::span<std::byte> memory) {
  if (binding_.memory.empty()) return;
  memory_refused_ = !place_memory(memory, binding_.memory) || memory_refused_;
}

std::string CpuLayer::explain() const {
  return plan_.explain() +
         fmt::format("place         {}: {}{}\n", place_.describe(), binding_.describe(),
                     memory_refused_ ? " (refused by the system: where it is touched first)" : "");
}

Batch CpuLayer::batch(std::int64_t tokens) const {
  const LayerConfig& config = plan_.config;
  check_tokens(config, tokens, group_.rank());
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

void CpuLayer::forward(const LayerCall& call) {
  check_call(plan_.config, batch(call.batch.tokens), call, call.batch.tokens);
  const ThreadBinding binding(binding_.threads);
  engine_->forward({.tokens = call.batch.tokens,
                    .x_bf16 = call.batch.x_bf16.data(),
                    .y = call.y.data(),
                    .execution = call.execution});
}

void CpuGraph::replay(std::int64_t tokens) {
  const Batch batch = layer_.batch(tokens);
  const auto values = static_cast<std::size_t>(tokens * layer_.config().hidden);
  layer_.forward({batch, options_.y.first(values), options_.execution});
}

}  // namespace

std::unique_ptr<LayerState> make_cpu_layer(const LayerConfig& config, const WeightSource& source,
                                           const Group& group, const LayerOptions& options) {
  return std::make_unique<CpuLayer>(config, source, group, options);
}

}  // namespace megamoe
