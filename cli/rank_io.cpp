#include "cli/rank_io.hpp"

#include <algorithm>

#include "base/integers.hpp"

namespace megamoe::cli {

RankIo::RankIo(const LayerConfig& config, Backend backend, std::int64_t tokens)
    : hidden_(config.hidden),
      top_k_(config.top_k),
      backend_(backend),
      host_y_(static_cast<std::size_t>(tokens * config.hidden)) {
  if (backend != Backend::cuda) return;
  const std::int64_t bytes = max64(16, tokens * config.hidden * std::int64_t{sizeof(BFloat16)});
  x_ = device::Memory(bytes, "x");
  y_ = device::Memory(bytes, "y");
  stream_.emplace();
}

Batch RankIo::load(const Layer& layer, const SyntheticInput& input, std::int64_t tokens) {
  Batch batch = layer.batch(tokens);
  const auto x = std::span(input.x).first(static_cast<std::size_t>(tokens * hidden_));
  const auto slots = static_cast<std::size_t>(tokens * top_k_);
  if (backend_ != Backend::cuda) {
    std::copy_n(input.experts.begin(), slots, batch.experts.begin());
    std::copy_n(input.weights.begin(), slots, batch.weights.begin());
    batch.x_bf16 = x;
    return batch;
  }
  const auto upload = [&](void* to, const void* from, std::size_t bytes) {
    stream_->copy(to, from, static_cast<std::int64_t>(bytes));
  };
  upload(batch.experts.data(), input.experts.data(), slots * sizeof(std::int64_t));
  upload(batch.weights.data(), input.weights.data(), slots * sizeof(float));
  upload(x_.get(), x.data(), x.size_bytes());
  stream_->wait();
  batch.x_bf16 = {x_.as<BFloat16>(), x.size()};
  return batch;
}

std::span<BFloat16> RankIo::y(std::int64_t tokens) {
  const auto values = static_cast<std::size_t>(tokens * hidden_);
  if (backend_ == Backend::cuda) return {y_.as<BFloat16>(), values};
  return std::span(host_y_).first(values);
}

std::span<const BFloat16> RankIo::read(std::int64_t tokens) {
  const auto values = std::span(host_y_).first(static_cast<std::size_t>(tokens * hidden_));
  if (backend_ == Backend::cuda) {
    stream_->copy(values.data(), y_.get(), static_cast<std::int64_t>(values.size_bytes()));
    stream_->wait();
  }
  return values;
}

}  // namespace megamoe::cli
