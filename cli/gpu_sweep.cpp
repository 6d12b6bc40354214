#include "cli/gpu_sweep.hpp"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "device/gpu.hpp"
#include "numerics/recipe.hpp"

namespace megamoe::cli {
namespace {

using Json = nlohmann::json;

// More than one, so that no call finds its rows in the cache from the call before.
constexpr std::int64_t kInputs = 3;

/// One input in device memory, to be copied into the arena before a call.
struct StagedInput {
  device::Memory x;
  device::Memory x_scales;
  device::Memory experts;
  device::Memory weights;
};

template <class T>
device::Memory upload(const std::vector<T>& values, const char* what) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  device::Memory memory(std::max<std::int64_t>(bytes, 16), what);
  if (bytes > 0) memory.copy_from(values.data(), bytes);
  return memory;
}

StagedInput stage(const LayerConfig& config, const SyntheticInput& input) {
  const auto tokens = static_cast<std::int64_t>(input.x.size()) / config.hidden;
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  std::vector<std::byte> values(size(tokens * x_row_bytes(config.recipe, config.hidden)));
  std::vector<std::byte> scales(size(tokens * x_scale_row_bytes(config.recipe, config.hidden)));
  convert_x(config.recipe, config.hidden, input.x, values, scales);
  return {upload(values, "x"), upload(scales, "x scales"), upload(input.experts, "ids"),
          upload(input.weights, "weights")};
}

/// What a rank has on its device beside the layer; made before it (see RankIo).
class GpuBench {
 public:
  GpuBench(const LayerSource& source, const SweepRequest& request, std::int64_t rank)
      : request_(request),
        calls_(request.warm_up + request.calls),
        y_(source.config().max_tokens * source.config().hidden * 2, "y"),
        begin_(static_cast<std::size_t>(calls_)),
        end_(static_cast<std::size_t>(calls_)) {
    for (std::int64_t n = 0; n < kInputs; ++n) {
      inputs_.push_back(stage(source.config(), source.input(rank, n)));
    }
  }

  Json measure(Layer& layer, std::int64_t tokens, Execution execution) {
    const Batch batch = layer.batch(tokens);
    const std::span<BFloat16> y(y_.as<BFloat16>(),
                                static_cast<std::size_t>(tokens * layer.config().hidden));
    for (std::int64_t call = 0; call < calls_; ++call) {
      fill(batch, inputs_[static_cast<std::size_t>(call % kInputs)]);
      begin_[static_cast<std::size_t>(call)].record(stream_.get());
      layer.forward(batch, y, stream_.get(), execution);
      end_[static_cast<std::size_t>(call)].record(stream_.get());
    }
    layer.wait();
    std::vector<double> times_ns;
    for (std::int64_t call = request_.warm_up; call < calls_; ++call) {
      const auto at = static_cast<std::size_t>(call);
      times_ns.push_back(end_[at].microseconds_since(begin_[at]) * 1e3);
    }
    return to_json(layer.report(), times_ns);
  }

 private:
  void fill(const Batch& batch, const StagedInput& from) const {
    const auto copy = [&](auto to, const device::Memory& memory) {
      stream_.copy(to.data(), memory.get(), static_cast<std::int64_t>(to.size_bytes()));
    };
    copy(batch.x, from.x);
    copy(batch.x_scales, from.x_scales);
    copy(batch.experts, from.experts);
    copy(batch.weights, from.weights);
  }

  static Json to_json(const CallReport& report, const std::vector<double>& times_ns) {
    std::int64_t rows = 0;
    std::int64_t hit = 0;
    for (const std::int64_t count : report.rows_per_expert) {
      rows += count;
      hit += count > 0 ? 1 : 0;
    }
    return {{"times_ns", times_ns},
            {"rows", rows},
            {"experts_hit", hit},
            {"weight_bytes", report.weight_bytes},
            {"flops", report.flops}};
  }

  const SweepRequest& request_;
  std::int64_t calls_;
  std::vector<StagedInput> inputs_;
  device::Memory y_;
  device::Stream stream_;
  std::vector<device::Event> begin_;
  std::vector<device::Event> end_;
};

}  // namespace

std::vector<SweepPoint> gpu_sweep(const LayerSource& source, const SweepRequest& request,
                                  RankTeam& team) {
  return collect_points(source, request, team, [&](const RankWork& work) {
    work.progress.enter("packing weights", 0);
    const std::int64_t rank = work.group.rank();
    GpuBench bench(source, request, rank);
    Layer layer(source.config(), source.weights(rank), work.group, request.layer);
    Json document = Json::array();
    for (const std::int64_t tokens : request.tokens) {
      for (const Execution execution : request.executions) {
        document.push_back(bench.measure(layer, tokens, execution));
      }
    }
    return document.dump();
  });
}

}  // namespace megamoe::cli
