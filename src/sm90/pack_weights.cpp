#include "sm90/pack_weights.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "layout/weight_matrix.hpp"
#include "routing/placement.hpp"
#include "sm90/pack_kernels.hpp"

namespace megamoe::sm90 {
namespace {

void check_bias(const std::vector<float>& bias, std::int64_t rows, const std::string& what) {
  if (bias.empty()) return;
  check_argument(static_cast<std::int64_t>(bias.size()) == rows, "{} has {} values: {} are wanted",
                 what, bias.size(), rows);
  for (std::size_t row = 0; row < bias.size(); ++row) {
    if (!std::isfinite(bias[row])) {
      fail(ErrorCode::format, "{} has a value that is not finite at row {}", what, row);
    }
  }
}

void check_packable(const MatrixView& matrix, WeightFormat wanted, std::int64_t rows,
                    std::int64_t columns, const std::string& what) {
  check_matrix(matrix, rows, columns, what);
  check_finite(matrix, what);
  if (matrix.format != wanted && matrix.format != WeightFormat::bf16) {
    FormattedMatrix(matrix, wanted, what);  // refuses it, and says why
  }
}

void upload_rows(const device::Memory& to, const std::byte* from, std::int64_t stride,
                 std::int64_t bytes, std::int64_t rows, const char* what) {
  device::check(cudaMemcpy2D(to.get(), bytes, from, stride, bytes, rows, cudaMemcpyHostToDevice),
                what);
}

/// The matrix, copied to the GPU with its rows side by side.
void upload(const MatrixView& m, const device::Memory& values, const device::Memory& scales,
            Fp4Matrix& on_gpu) {
  const std::int64_t bytes = m.columns / 2;
  const std::int64_t scale_bytes = m.columns / kScaleGroup;
  upload_rows(values, m.values, m.row_stride_bytes, bytes, m.rows, "copying weights");
  upload_rows(scales, m.scales, m.scale_row_stride_bytes, scale_bytes, m.rows,
              "copying weight scales");
  on_gpu = {
      values.as<std::uint8_t>(), bytes, scales.as<std::uint8_t>(), scale_bytes, m.rows, m.columns};
}
void upload(const MatrixView& m, const device::Memory& values, const device::Memory& scales,
            Fp8Matrix& on_gpu) {
  const std::int64_t in_row = ceil_div(m.columns, 128);
  upload_rows(values, m.values, m.row_stride_bytes, m.columns, m.rows, "copying weights");
  upload_rows(scales, m.scales, m.scale_row_stride_bytes, in_row * 4, ceil_div(m.rows, 128),
              "copying weight scales");
  on_gpu = {values.as<std::uint8_t>(), m.columns, scales.as<float>(), in_row, m.rows, m.columns};
}

/// The biases of an expert's rows in the order of the packed rows; `value_of(p)` is that of row p.
template <class ValueOf>
void pack_bias(std::int64_t expert, PackedWeights& to, const ValueOf& value_of) {
  to.has_bias = PackedWeights::Bias::some;
  std::vector<float> packed(static_cast<std::size_t>(to.shape.rows));
  for (std::int64_t p = 0; p < to.shape.rows; ++p) {
    packed[static_cast<std::size_t>(p)] = value_of(p);
  }
  to.bias.copy_from(packed.data(), to.shape.rows * 4, expert * to.shape.rows * 4);
}

/// 0 beyond its end: where there is no bias, and in the padding.
float value_or_zero(const std::vector<float>& bias, std::int64_t row) {
  const auto at = static_cast<std::size_t>(row);
  return at < bias.size() ? bias[at] : 0.0f;
}

}  // namespace

PackedWeights allocate_packed(const PackedMatrix& shape, std::int64_t experts,
                              std::string_view what) {
  PackedWeights weights{shape, device::Memory(shape.bytes() * experts, what),
                        device::Memory(shape.rows * experts * 4, what),
                        device::Memory(shape.rows * experts * 4, what)};
  weights.bias.fill(0);
  return weights;
}

void for_each_pool_expert(const LayerShape& shape, std::int64_t rank, const LayerWeights& weights,
                          const std::function<void(const PoolExpert&)>& visit) {
  for (std::int64_t local = 0; local < local_experts(shape, rank); ++local) {
    const std::int64_t number = expert_of(shape, {rank, local});
    visit({local, fmt::format("expert {}", number),
           weights.experts[static_cast<std::size_t>(number)]});
  }
  for (std::int64_t s = 0; s < shape.shared_experts; ++s) {
    visit({shape.experts_per_rank() + s, fmt::format("shared expert {}", s),
           weights.shared[static_cast<std::size_t>(s)]});
  }
}

void check_weights(const LayerShape& shape, std::int64_t rank, const LayerWeights& weights) {
  check_argument(static_cast<std::int64_t>(weights.experts.size()) == shape.experts,
                 "the weights have {} experts: the layer has {}", weights.experts.size(),
                 shape.experts);
  check_argument(static_cast<std::int64_t>(weights.shared.size()) == shape.shared_experts,
                 "the weights have {} shared experts: the layer has {}", weights.shared.size(),
                 shape.shared_experts);
  const WeightFormat wanted = weight_format(shape.recipe);
  for_each_pool_expert(shape, rank, weights, [&](const PoolExpert& at) {
    const ExpertWeights& expert = at.weights;
    const std::string& what = at.name;
    check_packable(expert.gate, wanted, shape.intermediate, shape.hidden, what + " gate");
    check_packable(expert.up, wanted, shape.intermediate, shape.hidden, what + " up");
    check_packable(expert.down, wanted, shape.hidden, shape.intermediate, what + " down");
    check_bias(expert.gate_bias, shape.intermediate, what + " gate bias");
    check_bias(expert.up_bias, shape.intermediate, what + " up bias");
    check_bias(expert.down_bias, shape.hidden, what + " down bias");
  });
}

WeightPacker::WeightPacker(const LayerShape& shape)
    : shape_(shape), format_(weight_format(shape.recipe)) {
  const std::int64_t values = shape.hidden * shape.intermediate;
  const bool fp8 = format_ == WeightFormat::fp8;
  const std::int64_t blocks = ceil_div(shape.hidden, 128) * ceil_div(shape.intermediate, 128);
  for (int i = 0; i < 2; ++i) {
    values_[i] = device::Memory(fp8 ? values : values / 2, "staging weights");
    scales_[i] = device::Memory(fp8 ? blocks * 4 : values / kScaleGroup, "staging weight scales");
  }
  const std::int64_t rows = max64(packed_gemm1(shape).rows, packed_gemm2(shape).rows);
  largest_ = device::Memory(rows * 4, "staging weight scales");
  rounded_ = device::Memory(8, "a counter");
  rounded_.fill(0);
}

template <class Matrix>
void WeightPacker::pack_matrices(const ExpertWeights& weights, std::int64_t pool_expert,
                                 PackedWeights& w1, PackedWeights& w2,
                                 std::string_view what) const {
  const auto formatted = [&](const MatrixView& matrix, const char* part) {
    return FormattedMatrix(matrix, format_, fmt::format("{} {}", what, part));
  };
  const auto run = [&](const PackSourceOf<Matrix>& source, PackedWeights& to) {
    launch_pack(source, {to.shape, to.tiles.get() + pool_expert * to.shape.bytes(),
                         to.row_factors.as<float>() + pool_expert * to.shape.rows,
                         largest_.as<std::int32_t>(), rounded_.as<unsigned long long>()});
    device::check(cudaGetLastError(), "packing weights");
  };
  {
    const FormattedMatrix gate = formatted(weights.gate, "gate");
    const FormattedMatrix up = formatted(weights.up, "up");
    PackSourceOf<Matrix> source;
    upload(gate.view(), values_[0], scales_[0], source.first);
    upload(up.view(), values_[1], scales_[1], source.second);
    run(source, w1);
  }
  const FormattedMatrix down = formatted(weights.down, "down");
  PackSourceOf<Matrix> source;
  upload(down.view(), values_[0], scales_[0], source.first);
  run(source, w2);
}

void WeightPacker::pack(const ExpertWeights& weights, std::int64_t pool_expert, PackedWeights& w1,
                        PackedWeights& w2, std::string_view what) {
  if (format_ == WeightFormat::fp8) {
    pack_matrices<Fp8Matrix>(weights, pool_expert, w1, w2, what);
  } else {
    pack_matrices<Fp4Matrix>(weights, pool_expert, w1, w2, what);
  }
  if (!weights.gate_bias.empty() || !weights.up_bias.empty()) {
    pack_bias(pool_expert, w1, [&](std::int64_t p) {
      const SourceRow source = gemm1_source(p);
      return value_or_zero(source.up ? weights.up_bias : weights.gate_bias, source.row);
    });
  }
  if (!weights.down_bias.empty()) {
    pack_bias(pool_expert, w2, [&](std::int64_t p) { return value_or_zero(weights.down_bias, p); });
  }
}

std::int64_t WeightPacker::rounded_values() const {
  unsigned long long rounded = 0;
  device::check(cudaMemcpy(&rounded, rounded_.get(), 8, cudaMemcpyDeviceToHost),
                "reading a counter");
  return static_cast<std::int64_t>(rounded);
}

}  // namespace megamoe::sm90
