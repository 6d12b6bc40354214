#include "sm90/pack_weights.hpp"

#include <vector>

#include "base/check.hpp"
#include "sm90/pack_kernels.hpp"

namespace megamoe::sm90 {
namespace {

void check_fp4(const MatrixView& m, std::int64_t rows, std::int64_t columns,
               std::string_view what) {
  if (m.format != WeightFormat::fp4) {
    fail(ErrorCode::unsupported,
         "{} is not FP4: the GPU runs recipe fp8_fp4 with FP4 weights; quantise them first", what);
  }
  check_argument(m.rows == rows && m.columns == columns, "{} is [{}, {}]: [{}, {}] is wanted", what,
                 m.rows, m.columns, rows, columns);
  check_argument(m.values != nullptr && m.scales != nullptr, "{} has no values or no scales", what);
}

/// The matrix, copied to the GPU with its rows side by side.
Fp4Matrix upload(const MatrixView& m, const device::Memory& values, const device::Memory& scales) {
  const std::int64_t bytes = m.columns / 2;
  const std::int64_t scale_bytes = m.columns / kScaleGroup;
  device::check(cudaMemcpy2D(values.get(), bytes, m.values, m.row_stride_bytes, bytes, m.rows,
                             cudaMemcpyHostToDevice),
                "copying weights");
  device::check(cudaMemcpy2D(scales.get(), scale_bytes, m.scales, m.scale_row_stride_bytes,
                             scale_bytes, m.rows, cudaMemcpyHostToDevice),
                "copying weight scales");
  return {
      values.as<std::uint8_t>(), bytes, scales.as<std::uint8_t>(), scale_bytes, m.rows, m.columns};
}

/// A bias in the order of the packed rows.
void pack_bias(const std::vector<float>& first, const std::vector<float>& second,
               std::int64_t expert, PackedWeights& to) {
  if (first.empty() && second.empty()) return;
  to.has_bias = PackedWeights::Bias::some;
  std::vector<float> packed(static_cast<std::size_t>(to.shape.rows), 0.0f);
  for (std::int64_t p = 0; p < to.shape.rows; ++p) {
    const bool paired = !second.empty();
    const std::vector<float>& bias = paired && gemm1_source(p).up ? second : first;
    const std::int64_t row = paired ? gemm1_source(p).row : p;
    if (row < static_cast<std::int64_t>(bias.size())) {
      packed[static_cast<std::size_t>(p)] = bias[static_cast<std::size_t>(row)];
    }
  }
  to.bias.copy_from(packed.data(), to.shape.rows * 4, expert * to.shape.rows * 4);
}

PackedWeights allocate(const PackedMatrix& shape, std::int64_t experts, std::string_view what) {
  PackedWeights weights{shape, device::Memory(shape.bytes() * experts, what),
                        device::Memory(shape.rows * experts * 4, what),
                        device::Memory(shape.rows * experts * 4, what)};
  weights.bias.fill(0);
  return weights;
}

}  // namespace

WeightPacker::WeightPacker(const LayerShape& shape) : shape_(shape) {
  const std::int64_t values = shape.hidden * shape.intermediate / 2;
  for (int i = 0; i < 2; ++i) {
    values_[i] = device::Memory(values, "staging weights");
    scales_[i] = device::Memory(values / 16, "staging weight scales");
  }
  const std::int64_t rows = max64(packed_gemm1(shape).rows, packed_gemm2(shape).rows);
  largest_ = device::Memory(rows * 4, "staging weight scales");
  rounded_ = device::Memory(8, "a counter");
  rounded_.fill(0);
}

PackedWeights WeightPacker::allocate_gemm1(std::int64_t experts) const {
  return allocate(packed_gemm1(shape_), max64(1, experts), "packed W1");
}
PackedWeights WeightPacker::allocate_gemm2(std::int64_t experts) const {
  return allocate(packed_gemm2(shape_), max64(1, experts), "packed W2");
}

void WeightPacker::pack(const ExpertWeights& weights, std::int64_t local_expert, PackedWeights& w1,
                        PackedWeights& w2, std::string_view what) {
  const auto name = [&](const char* part) { return fmt::format("{} of {}", part, what); };
  check_fp4(weights.gate, shape_.intermediate, shape_.hidden, name("gate"));
  check_fp4(weights.up, shape_.intermediate, shape_.hidden, name("up"));
  check_fp4(weights.down, shape_.hidden, shape_.intermediate, name("down"));
  const auto run = [&](const PackSource& source, PackedWeights& to) {
    launch_pack(source, {to.shape, to.tiles.get() + local_expert * to.shape.bytes(),
                         to.row_factors.as<float>() + local_expert * to.shape.rows,
                         largest_.as<std::int32_t>(), rounded_.as<unsigned long long>()});
    device::check(cudaGetLastError(), "packing weights");
  };
  run({upload(weights.gate, values_[0], scales_[0]), upload(weights.up, values_[1], scales_[1])},
      w1);
  run({upload(weights.down, values_[0], scales_[0]), {}}, w2);
  pack_bias(weights.gate_bias, weights.up_bias, local_expert, w1);
  pack_bias(weights.down_bias, {}, local_expert, w2);
}

std::int64_t WeightPacker::rounded_values() const {
  unsigned long long rounded = 0;
  device::check(cudaMemcpy(&rounded, rounded_.get(), 8, cudaMemcpyDeviceToHost),
                "reading a counter");
  return static_cast<std::int64_t>(rounded);
}

}  // namespace megamoe::sm90
