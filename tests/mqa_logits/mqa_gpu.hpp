// Calls of the MQA logits on a GPU, with inputs and results in host memory.
#pragma once

#include <vector>

#include "device/cuda.hpp"
#include "mqa_data.hpp"

namespace megamoe::test {

/// A copy in GPU memory.
template <class T>
device::Memory upload(const std::vector<T>& from) {
  const auto bytes = static_cast<std::int64_t>(from.size() * sizeof(T));
  device::Memory memory(max64(bytes, 16), "an input");
  if (bytes > 0) memory.copy_from(from.data(), bytes);
  return memory;
}

/// Queries in GPU memory.
struct GpuQueries {
  explicit GpuQueries(const QueryData& data)
      : q(upload(data.q)), f32(upload(data.f32)), f16(upload(data.f16)), view(data.view) {
    view.q = q.as<std::byte>();
    view.weights = view.weight_format == MqaWeightFormat::f32 ? f32.as<void>() : f16.as<void>();
  }
  device::Memory q, f32, f16;
  MqaQueries view;
};

struct GpuDense {
  explicit GpuDense(const DenseData& data)
      : queries(data.queries),
        kv(upload(data.kv)),
        scales(upload(data.scales)),
        begins(upload(data.begins)),
        ends(upload(data.ends)),
        input(data.input) {
    input.queries = queries.view;
    input.kv = kv.as<std::byte>();
    input.kv_scales = scales.as<float>();
    if (input.begins != nullptr) input.begins = begins.as<std::int32_t>();
    if (input.ends != nullptr) input.ends = ends.as<std::int32_t>();
  }
  GpuQueries queries;
  device::Memory kv, scales, begins, ends;
  MqaLogitsInput input;
};

struct GpuPaged {
  explicit GpuPaged(const PagedData& data)
      : queries(data.queries),
        cache(upload(data.cache)),
        contexts(upload(data.contexts)),
        table(upload(data.table)),
        input(data.input) {
    input.queries = queries.view;
    input.cache = cache.as<std::byte>();
    input.context_lengths = contexts.as<std::int32_t>();
    input.block_table = table.as<std::int32_t>();
  }
  GpuQueries queries;
  device::Memory cache, contexts, table;
  PagedMqaLogitsInput input;
};

inline std::int64_t columns_of(const MqaLogitsInput& input) {
  return input.keys;
}
inline std::int64_t columns_of(const PagedMqaLogitsInput& input) {
  return input.max_context;
}

/// The byte of a result that nobody wrote.
inline constexpr int kPoisonByte = 0x5B;

/// What a call writes, as it stands in memory: [rows][row_stride] values of T.
template <class T, class Input>
std::vector<T> run_on_gpu(const Input& input, std::int64_t row_stride,
                          MqaOutside outside = MqaOutside::minus_infinity) {
  std::vector<T> logits(static_cast<std::size_t>(input.queries.rows * row_stride));
  const auto bytes = static_cast<std::int64_t>(logits.size() * sizeof(T));
  device::Memory memory(max64(bytes, 16), "logits");
  memory.fill(kPoisonByte);
  device::Stream stream;
  device::check(cudaDeviceSynchronize(), "poisoning logits");
  mqa_logits_on_gpu(input,
                    {.logits = memory.get(),
                     .format = sizeof(T) == 2 ? MqaLogitFormat::bf16 : MqaLogitFormat::f32,
                     .row_stride = row_stride,
                     .outside = outside},
                    stream.get());
  stream.wait();
  device::check(cudaMemcpy(logits.data(), memory.get(), static_cast<std::size_t>(bytes),
                           cudaMemcpyDeviceToHost),
                "reading logits");
  return logits;
}

template <class Input>
std::vector<float> run_on_gpu(const Input& input) {
  return run_on_gpu<float>(input, columns_of(input));
}

/// The same call on the CPU, which stands for the reference where that takes too long.
template <class Input>
std::vector<double> run_on_cpu(const Input& input) {
  const std::int64_t columns = columns_of(input);
  std::vector<float> logits(static_cast<std::size_t>(input.queries.rows * columns));
  MqaLogits().run(input, MqaLogitsOutput{.logits = logits.data(),
                                         .row_stride = columns,
                                         .outside = MqaOutside::minus_infinity});
  return {logits.begin(), logits.end()};
}

}  // namespace megamoe::test
