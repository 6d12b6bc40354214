#include "cpu/packed_weights.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>

#include <sys/mman.h>

#include "base/check.hpp"
#include "layout/weight_matrix.hpp"
#include "numerics/recipe.hpp"
#include "routing/placement.hpp"

namespace megamoe {
namespace {

/// Which matrix rows a half-strip holds.
struct HalfStrip {
  const MatrixView* matrix;
  std::int64_t first_row;
};

void pack_lane(const MatrixView& matrix, std::int64_t row, std::int64_t chunk, std::int64_t lane,
               std::byte* out) {
  const WeightFormat format = matrix.format;
  const std::int64_t step = columns_per_word(format);
  const std::int64_t first = chunk * kChunkColumns;
  const std::int64_t columns = min64(kChunkColumns, matrix.columns - first);
  // A word is the row's own bytes: 8 nibbles, 4 bytes or 2 bf16, lowest column first.
  const std::byte* from = matrix.values + row * matrix.row_stride_bytes + first / step * 4;
  for (std::int64_t column = 0; column < columns; column += step) {
    const std::int64_t bytes = min64(4, (columns - column) * 4 / step);
    std::memcpy(out + word_offset(format, lane, column), from + column / step * 4,
                static_cast<std::size_t>(bytes));
  }
  if (format == WeightFormat::fp4) {
    for (std::int64_t column = 0; column < columns; column += 32) {
      out[scale_offset(format, lane, column)] =
          std::byte{scale_byte_at(matrix, row, first + column)};
    }
  } else if (format == WeightFormat::fp8) {
    const float scale = scale_at(matrix, row, first);
    std::memcpy(out + scale_offset(format, lane, 0), &scale, sizeof scale);
  }
}

void pack_strip(const HalfStrip (&halves)[2], const StripShape& shape, std::byte* out) {
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    std::byte* to = out + chunk * chunk_bytes(shape.format);
    std::memset(to, 0, static_cast<std::size_t>(chunk_bytes(shape.format)));
    for (std::int64_t lane = 0; lane < kStripLanes; ++lane) {
      const HalfStrip& half = halves[lane / kHalfStripLanes];
      const std::int64_t row = half.first_row + lane % kHalfStripLanes;
      if (row < half.matrix->rows) pack_lane(*half.matrix, row, chunk, lane, to);
    }
  }
}

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

/// What must hold before a matrix can be packed in `format`.
void check_packable(const MatrixView& matrix, std::int64_t rows, std::int64_t columns,
                    WeightFormat format, const std::string& what) {
  check_matrix(matrix, rows, columns, what);
  check_finite(matrix, what);
  const bool quantised = matrix.format != WeightFormat::bf16 && format != WeightFormat::bf16;
  if (quantised && matrix.format != format) FormattedMatrix(matrix, format, what);  // refuses it
}

}  // namespace

PageMemory::PageMemory(std::int64_t bytes, std::string_view what) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::out_of_memory,
         "{} bytes for {} are not to be had: {}; see the limit of address space (ulimit -v)", bytes,
         what, std::strerror(errno));
  }
  // Read as one long stream: with 4 KiB pages the walks of the page tables show. A refusal only
  // costs speed.
  (void)madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  data_ = {static_cast<std::byte*>(memory), UnmapPages{bytes}};
}

void UnmapPages::operator()(std::byte* data) const {
  munmap(data, static_cast<std::size_t>(bytes));
}

ExpertStrips expert_strips(const LayerShape& shape, std::int64_t pool_expert) {
  const WeightFormat format = shape.expert_format(pool_expert);
  return {gemm1_strips(format, shape.hidden, shape.intermediate),
          gemm2_strips(format, shape.hidden, shape.intermediate)};
}

std::int64_t packed_matrix_bytes(const LayerShape& shape) {
  const std::int64_t routed = shape.experts_per_rank();
  return routed * expert_strips(shape, 0).bytes() +
         shape.shared_experts * expert_strips(shape, routed).bytes();
}

PackedWeights::PackedWeights(const LayerShape& shape)
    : shape_(shape), strips_(packed_matrix_bytes(shape), "packed weights") {}

std::int64_t PackedWeights::expert_offset(std::int64_t pool_expert) const {
  const std::int64_t routed = min64(pool_expert, shape_.experts_per_rank());
  return routed * expert_strips(shape_, 0).bytes() +
         (pool_expert - routed) * expert_strips(shape_, pool_expert).bytes();
}

std::int64_t PackedWeights::bias_floats_per_expert() const {
  const ExpertStrips strips = expert_strips(shape_, 0);  // as many in every format
  return 2 * strips.gemm1.strips * kHalfStripLanes + strips.gemm2.strips * kStripLanes;
}

void PackedWeights::pack(const LayerWeights& weights, std::int64_t rank) {
  check_argument(static_cast<std::int64_t>(weights.experts.size()) == shape_.experts,
                 "the weights have {} experts: the layer has {}", weights.experts.size(),
                 shape_.experts);
  check_argument(static_cast<std::int64_t>(weights.shared.size()) == shape_.shared_experts,
                 "the weights have {} shared experts: the layer has {}", weights.shared.size(),
                 shape_.shared_experts);
  struct Part {
    const ExpertWeights* expert;
    std::int64_t pool_expert;
    std::string name;
  };
  std::vector<Part> parts;
  const std::int64_t routed = local_experts(shape_, rank);
  for (std::int64_t local = 0; local < routed; ++local) {
    const std::int64_t expert = expert_of(shape_, {rank, local});
    parts.push_back({&weights.experts[static_cast<std::size_t>(expert)], local,
                     fmt::format("expert {}", expert)});
  }
  for (std::int64_t s = 0; s < shape_.shared_experts; ++s) {
    parts.push_back({&weights.shared[static_cast<std::size_t>(s)], shape_.experts_per_rank() + s,
                     fmt::format("shared expert {}", s)});
  }
  // All are checked before the first is replaced: a layer keeps its old weights when new ones are
  // refused.
  for (const Part& part : parts) check_expert(*part.expert, part.pool_expert, part.name);
  biases_.clear();
  for (const Part& part : parts) pack_expert(*part.expert, part.pool_expert, part.name);
}

void PackedWeights::check_expert(const ExpertWeights& expert, std::int64_t pool_expert,
                                 const std::string& what) const {
  const std::int64_t h = shape_.hidden;
  const std::int64_t i = shape_.intermediate;
  const WeightFormat format = shape_.expert_format(pool_expert);
  check_packable(expert.gate, i, h, format, what + " gate");
  check_packable(expert.up, i, h, format, what + " up");
  check_packable(expert.down, h, i, format, what + " down");
  check_bias(expert.gate_bias, i, what + " gate bias");
  check_bias(expert.up_bias, i, what + " up bias");
  check_bias(expert.down_bias, h, what + " down bias");
}

void PackedWeights::pack_expert(const ExpertWeights& expert, std::int64_t pool_expert,
                                const std::string& what) {
  const auto formatted = [&](const MatrixView& matrix, const char* name) {
    return FormattedMatrix(matrix, shape_.expert_format(pool_expert), what + ' ' + name);
  };
  const auto [gemm1, gemm2] = expert_strips(shape_, pool_expert);
  std::byte* out = strips_.data() + expert_offset(pool_expert);
  {
    const FormattedMatrix gate = formatted(expert.gate, "gate");
    const FormattedMatrix up = formatted(expert.up, "up");
    for (std::int64_t strip = 0; strip < gemm1.strips; ++strip) {
      const std::int64_t row = strip * kHalfStripLanes;
      pack_strip({{&gate.view(), row}, {&up.view(), row}}, gemm1,
                 out + strip * gemm1.strip_bytes());
    }
  }
  out += gemm1.bytes();
  const FormattedMatrix down = formatted(expert.down, "down");
  for (std::int64_t strip = 0; strip < gemm2.strips; ++strip) {
    const std::int64_t row = strip * kStripLanes;
    pack_strip({{&down.view(), row}, {&down.view(), row + kHalfStripLanes}}, gemm2,
               out + strip * gemm2.strip_bytes());
  }
  pack_biases(expert, pool_expert);
}

void PackedWeights::pack_biases(const ExpertWeights& expert, std::int64_t pool_expert) {
  if (expert.gate_bias.empty() && expert.up_bias.empty() && expert.down_bias.empty()) return;
  biases_.resize(static_cast<std::size_t>(bias_floats()), 0.0f);
  float* gate = biases_.data() + pool_expert * bias_floats_per_expert();
  const std::int64_t half = expert_strips(shape_, pool_expert).gemm1.strips * kHalfStripLanes;
  float* up = gate + half;
  float* down = up + half;
  std::copy(expert.gate_bias.begin(), expert.gate_bias.end(), gate);
  std::copy(expert.up_bias.begin(), expert.up_bias.end(), up);
  std::copy(expert.down_bias.begin(), expert.down_bias.end(), down);
}

PackedExpert PackedWeights::expert(std::int64_t pool_expert) const {
  PackedExpert expert{};
  expert.strips = expert_strips(shape_, pool_expert);
  expert.gemm1 = strips_.data() + expert_offset(pool_expert);
  expert.gemm2 = expert.gemm1 + expert.strips.gemm1.bytes();
  if (!biases_.empty()) {
    expert.gate_bias = biases_.data() + pool_expert * bias_floats_per_expert();
    const std::int64_t half = expert.strips.gemm1.strips * kHalfStripLanes;
    expert.up_bias = expert.gate_bias + half;
    expert.down_bias = expert.up_bias + half;
  }
  return expert;
}

}  // namespace megamoe
