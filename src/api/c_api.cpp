#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "megamoe/backend.hpp"
#include "megamoe/checkpoint.hpp"
#include "megamoe/error.hpp"
#include "megamoe/group.hpp"
#include "megamoe/layer.hpp"
#include "megamoe/megamoe.h"
#include "megamoe/router.hpp"
#include "megamoe/version.hpp"

#include "api/c_status.hpp"
#include "api/c_translate.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names of megamoe.h
struct megamoe_group {
  megamoe::Group group;
};

struct megamoe_checkpoint {
  megamoe::CheckpointLayer layer;
};

struct megamoe_layer {
  megamoe::Layer layer;
  std::string explanation;
};
// NOLINTEND(readability-identifier-naming)

namespace megamoe::c {
namespace {

GroupOptions group_options(std::int64_t deadline_ns) {
  if (deadline_ns == MEGAMOE_DEFAULT_DEADLINE) return {};
  check_argument(deadline_ns >= 0,
                 "deadline_ns is {}: nanoseconds, 0 for ever, or MEGAMOE_DEFAULT_DEADLINE",
                 deadline_ns);
  return {.deadline = std::chrono::nanoseconds(deadline_ns)};
}

/// A handle for each of the groups that `make` makes, or NULL in all places.
template <class Make>
megamoe_status made_all(megamoe_group** groups, int ranks, const Make& make) noexcept {
  return guarded([&] {
    required(groups, "groups");
    for (int rank = 0; rank < ranks; ++rank) groups[rank] = nullptr;
    std::vector<std::unique_ptr<megamoe_group>> handles;
    for (Group& group : make()) {
      handles.push_back(std::make_unique<megamoe_group>(megamoe_group{std::move(group)}));
    }
    for (std::size_t rank = 0; rank < handles.size(); ++rank) {
      groups[rank] = handles[rank].release();
    }
  });
}

megamoe_layer explained(Layer layer) {
  std::string explanation = layer.explain();
  return megamoe_layer{std::move(layer), std::move(explanation)};
}

/// tokens * width places, in memory that is there unless there are none.
std::size_t places(std::int64_t tokens, std::int64_t width, const void* memory, const char* name) {
  std::int64_t count = 0;
  check_argument(tokens >= 0 && !__builtin_mul_overflow(tokens, width, &count),
                 "tokens is {}: 0 or more are wanted", tokens);
  check_argument(count == 0 || memory != nullptr, "{} is NULL: room for {} x {} is wanted", name,
                 tokens, width);
  return static_cast<std::size_t>(count);
}

/// The batch of the layer's arena with what the caller may set: the rest is the layer's own.
Batch to_batch(const Layer& layer, const megamoe_batch& batch) {
  Batch result = layer.batch(batch.tokens);
  result.experts = {batch.experts, result.experts.size()};
  if (batch.x_bf16 != nullptr) result.x_bf16 = {to_bf16(batch.x_bf16), batch.x_bf16_values};
  return result;
}

}  // namespace
}  // namespace megamoe::c

using namespace megamoe::c;

const char* megamoe_version(void) {
  return megamoe::version();
}

const char* megamoe_last_error(void) {
  return last_error();
}

int megamoe_cuda_devices(void) {
  return megamoe::cuda_devices();
}

megamoe_status megamoe_choose_backend(const megamoe_layer_config* config, int ranks,
                                      megamoe_backend wanted, megamoe_backend* backend) {
  return guarded([&] {
    required(backend, "backend") = from_backend(
        megamoe::choose_backend(to_config(required(config, "config")), ranks, to_backend(wanted))
            .backend);
  });
}

megamoe_status megamoe_group_single(int64_t deadline_ns, megamoe_group** group) {
  return made(group, "group",
              [&] { return megamoe_group{megamoe::Group::single(group_options(deadline_ns))}; });
}

megamoe_status megamoe_group_threads(int ranks, int64_t deadline_ns, megamoe_group** groups) {
  return made_all(groups, ranks,
                  [&] { return megamoe::Group::threads(ranks, group_options(deadline_ns)); });
}

megamoe_status megamoe_group_devices(const int* devices, int ranks, int64_t deadline_ns,
                                     megamoe_group** groups) {
  return made_all(groups, ranks, [&] {
    megamoe::check_argument(ranks >= 1, "{} ranks: at least one is wanted", ranks);
    const int* const first = &required(devices, "devices");
    return megamoe::Group::devices({first, first + ranks}, group_options(deadline_ns));
  });
}

megamoe_status megamoe_group_processes(int rank, int ranks, const char* rendezvous,
                                       int64_t deadline_ns, megamoe_group** group) {
  return made(group, "group", [&] {
    required(rendezvous, "rendezvous");
    return megamoe_group{megamoe::Group::processes({.rank = rank,
                                                    .ranks = ranks,
                                                    .rendezvous = rendezvous,
                                                    .group = group_options(deadline_ns)})};
  });
}

megamoe_status megamoe_group_processes_on_device(int rank, int ranks, const char* rendezvous,
                                                 int device, int64_t deadline_ns,
                                                 megamoe_group** group) {
  return made(group, "group", [&] {
    required(rendezvous, "rendezvous");
    return megamoe_group{megamoe::Group::processes({.rank = rank,
                                                    .ranks = ranks,
                                                    .rendezvous = rendezvous,
                                                    .group = group_options(deadline_ns),
                                                    .device = device})};
  });
}

megamoe_status megamoe_group_rank(const megamoe_group* group, int* rank, int* ranks) {
  return guarded([&] {
    const megamoe::Group& it = required(group, "group").group;
    required(rank, "rank") = it.rank();
    required(ranks, "ranks") = it.ranks();
  });
}

megamoe_status megamoe_group_backend(const megamoe_group* group, megamoe_backend* backend) {
  return guarded([&] {
    required(backend, "backend") = from_backend(required(group, "group").group.backend());
  });
}

megamoe_status megamoe_group_peers(const megamoe_peers* peers, int64_t deadline_ns,
                                   megamoe_group** group) {
  return made(group, "group", [&] {
    const megamoe_peers& it = required(peers, "peers");
    megamoe::check_argument(it.ranks >= 1, "{} ranks: at least one is wanted", it.ranks);
    void* const* const parts = &required(it.parts, "peers->parts");
    return megamoe_group{megamoe::Group::peers({.device = it.device,
                                                .rank = it.rank,
                                                .parts = {parts, parts + it.ranks},
                                                .bytes = it.bytes,
                                                .group = group_options(deadline_ns)})};
  });
}

megamoe_status megamoe_peer_bytes(const megamoe_layer_config* config, int ranks, int64_t* bytes) {
  return guarded([&] {
    required(bytes, "bytes") =
        megamoe::Group::peer_bytes(to_config(required(config, "config")), ranks);
  });
}

void megamoe_group_destroy(megamoe_group* group) {
  delete group;
}

megamoe_status megamoe_checkpoint_load(const char* directory, int64_t layer,
                                       megamoe_checkpoint** checkpoint) {
  return made(checkpoint, "checkpoint", [&] {
    required(directory, "directory");
    return megamoe_checkpoint{megamoe::load_layer(directory, layer)};
  });
}

megamoe_status megamoe_checkpoint_config(const megamoe_checkpoint* checkpoint,
                                         megamoe_layer_config* config) {
  return guarded([&] {
    required(config, "config") = from_config(required(checkpoint, "checkpoint").layer.config);
  });
}

megamoe_status megamoe_checkpoint_family(const megamoe_checkpoint* checkpoint,
                                         const char** family) {
  return guarded([&] {
    required(family, "family") = required(checkpoint, "checkpoint").layer.family.c_str();
  });
}

megamoe_status megamoe_checkpoint_route(const megamoe_checkpoint* checkpoint, const uint16_t* x,
                                        int64_t tokens, int64_t* experts, float* weights) {
  return guarded([&] {
    const megamoe::RouterConfig& router = required(checkpoint, "checkpoint").layer.router;
    megamoe::route(router, {to_bf16(x), places(tokens, router.hidden, x, "x")},
                   {experts, places(tokens, router.top_k, experts, "experts")},
                   {weights, places(tokens, router.top_k, weights, "weights")});
  });
}

void megamoe_checkpoint_destroy(megamoe_checkpoint* checkpoint) {
  delete checkpoint;
}

megamoe_status megamoe_layer_create_from_checkpoint(const megamoe_checkpoint* checkpoint,
                                                    const megamoe_layer_config* config,
                                                    const megamoe_group* group,
                                                    const megamoe_layer_options* options,
                                                    megamoe_layer** layer) {
  return made(layer, "layer", [&] {
    const megamoe::CheckpointLayer& from = required(checkpoint, "checkpoint").layer;
    return explained(megamoe::Layer(to_config(required(config, "config")), from.weights,
                                    required(group, "group").group, to_options(options)));
  });
}

megamoe_status megamoe_layer_create(const megamoe_layer_config* config,
                                    const megamoe_layer_weights* weights,
                                    const megamoe_group* group,
                                    const megamoe_layer_options* options, megamoe_layer** layer) {
  return made(layer, "layer", [&] {
    return explained(megamoe::Layer(to_config(required(config, "config")),
                                    to_weights(required(weights, "weights")),
                                    required(group, "group").group, to_options(options)));
  });
}

megamoe_status megamoe_layer_config_of(const megamoe_layer* layer, megamoe_layer_config* config) {
  return guarded(
      [&] { required(config, "config") = from_config(required(layer, "layer").layer.config()); });
}

megamoe_status megamoe_layer_batch(const megamoe_layer* layer, int64_t tokens,
                                   megamoe_batch* batch) {
  return guarded([&] {
    megamoe_batch& place = required(batch, "batch");
    place = {};
    const megamoe::Batch own = required(layer, "layer").layer.batch(tokens);
    place = {.tokens = own.tokens,
             .x = own.x.data(),
             .x_bytes = own.x.size(),
             .x_scales = own.x_scales.data(),
             .x_scales_bytes = own.x_scales.size(),
             .experts = own.experts.data(),
             .weights = own.weights.data(),
             .x_bf16 = nullptr,
             .x_bf16_values = 0};
  });
}

megamoe_status megamoe_layer_forward(megamoe_layer* layer, const megamoe_batch* batch, uint16_t* y,
                                     size_t y_values, megamoe_execution execution) {
  return guarded([&] {
    megamoe::Layer& it = required(layer, "layer").layer;
    const megamoe::Batch input = to_batch(it, required(batch, "batch"));
    megamoe::check_argument(y_values == 0 || y != nullptr,
                            "y is NULL: room for {} values is wanted", y_values);
    it.forward(input, {to_bf16(y), y_values}, to_execution(execution));
  });
}

megamoe_status megamoe_layer_enqueue(megamoe_layer* layer, const megamoe_batch* batch, uint16_t* y,
                                     size_t y_values, void* stream) {
  return guarded([&] {
    megamoe::Layer& it = required(layer, "layer").layer;
    it.forward(to_batch(it, required(batch, "batch")), {to_bf16(y), y_values}, stream);
  });
}

megamoe_status megamoe_layer_enqueue_counted(megamoe_layer* layer, const int32_t* tokens,
                                             const megamoe_batch* batch, uint16_t* y,
                                             size_t y_values, void* stream) {
  return guarded([&] {
    megamoe::Layer& it = required(layer, "layer").layer;
    it.forward_counted(tokens, to_batch(it, required(batch, "batch")), {to_bf16(y), y_values},
                       stream);
  });
}

megamoe_status megamoe_layer_wait(megamoe_layer* layer) {
  return guarded([&] { required(layer, "layer").layer.wait(); });
}

megamoe_status megamoe_layer_poll(megamoe_layer* layer, int* over) {
  return guarded([&] {
    required(over, "over") = 0;
    *over = required(layer, "layer").layer.poll() ? 1 : 0;
  });
}

megamoe_status megamoe_layer_explain(const megamoe_layer* layer, const char** text) {
  return guarded([&] { required(text, "text") = required(layer, "layer").explanation.c_str(); });
}

megamoe_status megamoe_layer_report(const megamoe_layer* layer, megamoe_report* report) {
  return guarded(
      [&] { required(report, "report") = from_report(required(layer, "layer").layer.report()); });
}

void megamoe_layer_destroy(megamoe_layer* layer) {
  delete layer;
}
