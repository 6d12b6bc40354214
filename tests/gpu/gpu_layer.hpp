// Layers of the public interface on one CUDA device, and what fills and reads their memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/megamoe.hpp"

#include "cli/synthetic.hpp"
#include "cpu/reference.hpp"
#include "device/gpu.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {

/// Skips where no device is that the kernels run on.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (device::usable_devices() == 0) GTEST_SKIP() << "no GPU of compute capability 9.0";
  }
};

/// Wide enough that a token's error is that of many values: one value of the FP8 intermediate that
/// is rounded the other way costs its token up to 6 %.
inline LayerConfig gpu_config() {
  LayerConfig config;
  config.hidden = 1024;
  config.intermediate = 512;
  config.experts = 10;
  config.top_k = 4;
  config.max_tokens = 200;
  return config;
}

inline LayerWeights gpu_weights(const LayerConfig& config, std::uint64_t seed = 1) {
  return cli::synthetic_weights(config, seed, 0, config.experts);
}

/// A hang must not hold the machine.
inline GroupOptions quick(std::chrono::nanoseconds deadline = std::chrono::seconds(2)) {
  return {.deadline = deadline};
}

/// y of one rank in device memory, and its input as bf16.
class GpuIo {
 public:
  explicit GpuIo(const LayerConfig& config)
      : config_(config),
        x_(config.max_tokens * config.hidden * 2, "x"),
        y_(config.max_tokens * config.hidden * 2, "y") {
    poison();
  }

  void poison() { y_.fill(0xFF); }
  std::span<BFloat16> y(std::int64_t tokens) const {
    return {y_.as<BFloat16>(), static_cast<std::size_t>(tokens * config_.hidden)};
  }
  std::span<BFloat16> whole_y() const { return y(config_.max_tokens); }
  std::span<const BFloat16> x(std::int64_t tokens) const {
    return {x_.as<BFloat16>(), static_cast<std::size_t>(tokens * config_.hidden)};
  }

  /// The layer's batch, filled; x as bf16.
  Batch load(const Layer& layer, const Input& input) {
    const auto tokens = static_cast<std::int64_t>(input.x.size()) / config_.hidden;
    Batch batch = layer.batch(tokens);
    copy(batch.experts.data(), std::as_bytes(std::span(input.experts)));
    copy(batch.weights.data(), std::as_bytes(std::span(input.weights)));
    copy(x_.get(), std::as_bytes(std::span(input.x)));
    batch.x_bf16 = x(tokens);
    stream_.wait();
    return batch;
  }

  /// Rows [0, tokens) of y.
  std::vector<BFloat16> read(std::int64_t tokens) const {
    std::vector<BFloat16> values(static_cast<std::size_t>(tokens * config_.hidden));
    stream_.copy(values.data(), y_.get(), static_cast<std::int64_t>(values.size() * 2));
    stream_.wait();
    return values;
  }

  template <class T>
  std::vector<T> read(std::span<T> memory) const {
    std::vector<T> values(memory.size());
    stream_.copy(values.data(), memory.data(), static_cast<std::int64_t>(memory.size_bytes()));
    stream_.wait();
    return values;
  }

  void copy(void* to, std::span<const std::byte> from) const {
    stream_.copy(to, from.data(), static_cast<std::int64_t>(from.size()));
  }
  const device::Stream& stream() const { return stream_; }

 private:
  LayerConfig config_;
  device::Memory x_;
  device::Memory y_;
  device::Stream stream_;
};

/// One call that is waited for; x as bf16.
inline std::vector<BFloat16> run(Layer& layer, GpuIo& io, const Input& input) {
  const Batch batch = io.load(layer, input);
  io.poison();
  device::wait_for_device();
  layer.forward(batch, io.y(batch.tokens));
  return io.read(batch.tokens);
}

/// "" if y is as near to the f64 reference as the contract asks.
inline std::string against_reference(const LayerConfig& config, const LayerWeights& weights,
                                     const Input& input, const std::vector<BFloat16>& y) {
  const auto expected =
      reference_forward(config, weights, reference_x(config.recipe, config.hidden, input.x),
                        input.experts, input.weights);
  const double distance = relative_l2(as_floats(y), expected);
  return distance <= tolerance(config.recipe) ? "" : "relative L2 " + std::to_string(distance);
}

/// The code of the Error that `work` throws, and its message into `message`.
inline ErrorCode code_of(const std::function<void()>& work, std::string& message) {
  try {
    work();
  } catch (const Error& error) {
    message = error.what();
    return error.code();
  }
  message = "no error";
  return ErrorCode::internal;
}

}  // namespace megamoe::test
