#include "cpu/roles/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpu/roles/dispatch.hpp"
#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

// A panel stays in a core's L2 beside the sums: 384 KiB of the 1 to 2 MiB that server cores have.
constexpr std::int64_t kPanelFloats = 96 * 1024;

// Outputs of one task, in strips: a GEMM-1 task has 128 gate and 128 up rows, a GEMM-2 task 256
// outputs.
constexpr std::int64_t kTaskStrips = kIntermediateGroup / kHalfStripLanes;

PanelFormat panel_format(XFormat format) {
  switch (format) {
    case XFormat::e4m3_ue8m0_32:
      return PanelFormat::e4m3_ue8m0_32;
    case XFormat::e4m3_f32_128:
      return PanelFormat::e4m3_f32_128;
    case XFormat::bf16:
      break;
  }
  return PanelFormat::bf16;
}

struct ScratchFloats {
  std::int64_t panel;
  std::int64_t sums;
  std::int64_t activations;
};

ScratchFloats scratch_floats(const Plan& plan, const VectorKernels& kernels) {
  const std::int64_t rows = kernels.padded_rows(plan.block_rows);
  const std::int64_t strips = max64(kTaskStrips, plan.gemm2_columns / kStripLanes);
  return {max64(kPanelFloats, rows * kChunkColumns), strips * rows * kStripLanes,
          plan.block_rows * kIntermediateGroup};
}

/// The strips of one task.
struct StripRange {
  const std::byte* first;
  StripShape shape;
  std::int64_t strips;
};

/// scratch.sums[strip][row][lane] = rows times strips, over the whole inner dimension, panel by
/// panel.
void multiply(const CpuCall& call, PanelSource source, const StripRange& range,
              WorkerScratch& scratch) {
  const std::int64_t padded_rows = call.kernels.padded_rows(source.rows);
  std::fill_n(scratch.sums.floats(), range.strips * padded_rows * kStripLanes, 0.0f);
  const std::int64_t chunks_per_panel = max64(1, kPanelFloats / (padded_rows * kChunkColumns));
  for (std::int64_t chunk = 0; chunk < range.shape.chunks; chunk += chunks_per_panel) {
    const std::int64_t chunks = min64(chunks_per_panel, range.shape.chunks - chunk);
    source.first_column = chunk * kChunkColumns;
    source.columns = chunks * kChunkColumns;
    call.kernels.load_panel(source, scratch.panel.floats());
    call.kernels.accumulate({.format = range.shape.format,
                             .weights = range.first + chunk * chunk_bytes(range.shape.format),
                             .strip_stride_bytes = range.shape.strip_bytes(),
                             .strips = range.strips,
                             .chunks = chunks,
                             .panel = scratch.panel.floats(),
                             .rows = source.rows,
                             .sums = scratch.sums.floats()});
  }
}

void store_bf16(const float* values, const BlockRows& block, std::int64_t columns, std::byte* out,
                std::int64_t row_stride_bytes) {
  for (std::int64_t r = 0; r < block.rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const BFloat16 value = to_bf16(values[r * kIntermediateGroup + c]);
      std::memcpy(out + r * row_stride_bytes + 2 * c, &value, sizeof value);
    }
  }
}

/// The group's activations into the GEMM-2 input, in the recipe's intermediate format.
void store_group(const CpuCall& call, const BlockRows& block, std::int64_t group,
                 const float* activations) {
  const LayerShape& shape = call.plan.shape;
  const std::int64_t row_bytes = intermediate_row_bytes(shape.recipe, shape.intermediate);
  const std::int64_t columns =
      min64(kIntermediateGroup, shape.intermediate - group * kIntermediateGroup);
  std::byte* rows = call.arena.mine<std::byte>(RegionId::gemm2_input) + block.first_row * row_bytes;
  if (intermediate_format(shape.recipe) == IntermediateFormat::bf16) {
    store_bf16(activations, block, columns, rows + 2 * group * kIntermediateGroup, row_bytes);
    return;
  }
  const std::int64_t scale_bytes = intermediate_scale_row_bytes(shape.recipe, shape.intermediate);
  call.kernels.quantise({.values = activations,
                         .value_stride = kIntermediateGroup,
                         .rows = block.rows,
                         .columns = columns,
                         .bytes = rows + group * kIntermediateGroup,
                         .row_stride_bytes = row_bytes,
                         .scales = call.arena.mine<std::byte>(RegionId::gemm2_input_scales) +
                                   block.first_row * scale_bytes + group,
                         .scale_row_stride_bytes = scale_bytes});
}

std::uint64_t* readiness_words(const CpuCall& call, std::int64_t block) {
  return call.arena.mine<std::uint64_t>(RegionId::block_readiness, call.bank) +
         block * call.plan.shape.readiness_words();
}

void wait_for_arrival(const CpuCall& call, const Task& task, std::int64_t rows) {
  std::uint32_t& word =
      call.arena.mine<std::uint32_t>(RegionId::block_arrival, call.bank)[task.block];
  call.arena.waiter().until({"GEMM 1", "block arrival", task.block}, [&] {
    const std::uint32_t seen = std::atomic_ref(word).load(std::memory_order_acquire);
    return Observation{seen == rows, seen, static_cast<std::uint64_t>(rows)};
  });
}

void wait_for_readiness(const CpuCall& call, const Task& task) {
  const std::int64_t groups = call.plan.shape.intermediate_groups();
  std::uint64_t* words = readiness_words(call, task.block);
  for (std::int64_t w = 0; w < call.plan.shape.readiness_words(); ++w) {
    const std::int64_t bits = min64(64, groups - 64 * w);
    const std::uint64_t wanted = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    call.arena.waiter().until({"GEMM 2", "block readiness", task.block}, [&] {
      const std::uint64_t seen = std::atomic_ref(words[w]).load(std::memory_order_acquire);
      return Observation{seen == wanted, seen, wanted};
    });
  }
}

}  // namespace

void gemm1(const CpuCall& call, const TeamMember& me, const Task& task) {
  const LayerShape& shape = call.plan.shape;
  WorkerScratch& scratch = *me.scratch;
  const BlockRows block = rows_of_block(call, scratch, task);
  wait_for_arrival(call, task, block.rows);

  const PackedExpert expert = call.weights.expert(task.expert);
  const StripShape& strips = expert.strips.gemm1;
  const std::int64_t first_strip = task.part * kTaskStrips;
  const StripRange range{expert.gemm1 + first_strip * strips.strip_bytes(), strips,
                         min64(kTaskStrips, strips.strips - first_strip)};
  const std::int64_t row_bytes = x_row_bytes(shape.recipe, shape.hidden);
  const std::int64_t scale_bytes = x_scale_row_bytes(shape.recipe, shape.hidden);
  multiply(
      call,
      {.format = panel_format(x_format(shape.recipe)),
       .values = call.arena.mine<std::byte>(RegionId::gemm1_input) + block.first_row * row_bytes,
       .row_stride_bytes = row_bytes,
       .scales =
           call.arena.mine<std::byte>(RegionId::gemm1_input_scales) + block.first_row * scale_bytes,
       .scale_row_stride_bytes = scale_bytes,
       .rows = block.rows,
       .first_column = 0,
       .columns = 0,
       .valid_columns = shape.hidden},
      range, scratch);

  const std::int64_t first_intermediate = task.part * kIntermediateGroup;
  call.kernels.activate(
      {.sums = scratch.sums.floats(),
       .strips = range.strips,
       .padded_rows = call.kernels.padded_rows(block.rows),
       .rows = block.rows,
       .gate_bias = expert.gate_bias == nullptr ? nullptr : expert.gate_bias + first_intermediate,
       .up_bias = expert.up_bias == nullptr ? nullptr : expert.up_bias + first_intermediate,
       .row_weights = call.arena.mine<float>(RegionId::row_weight) + block.first_row,
       .rule = call.rule,
       .activations = scratch.activations.floats(),
       .activation_stride = kIntermediateGroup});
  store_group(call, block, task.part, scratch.activations.floats());
  std::uint64_t* words = readiness_words(call, task.block);
  std::atomic_ref(words[task.part / 64])
      .fetch_or(std::uint64_t{1} << (task.part % 64), std::memory_order_release);
}

void gemm2(const CpuCall& call, const TeamMember& me, const Task& task) {
  const LayerShape& shape = call.plan.shape;
  WorkerScratch& scratch = *me.scratch;
  const BlockRows block = rows_of_block(call, scratch, task);
  wait_for_readiness(call, task);

  const PackedExpert expert = call.weights.expert(task.expert);
  const StripShape& strips = expert.strips.gemm2;
  const std::int64_t first_column = task.part * call.plan.gemm2_columns;
  const std::int64_t first_strip = first_column / kStripLanes;
  const StripRange range{expert.gemm2 + first_strip * strips.strip_bytes(), strips,
                         min64(call.plan.gemm2_columns / kStripLanes, strips.strips - first_strip)};
  const std::int64_t row_bytes = intermediate_row_bytes(shape.recipe, shape.intermediate);
  const std::int64_t scale_bytes = intermediate_scale_row_bytes(shape.recipe, shape.intermediate);
  multiply(
      call,
      {.format = intermediate_format(shape.recipe) == IntermediateFormat::bf16
                     ? PanelFormat::bf16
                     : PanelFormat::e4m3_ue8m0_128,
       .values = call.arena.mine<std::byte>(RegionId::gemm2_input) + block.first_row * row_bytes,
       .row_stride_bytes = row_bytes,
       .scales =
           call.arena.mine<std::byte>(RegionId::gemm2_input_scales) + block.first_row * scale_bytes,
       .scale_row_stride_bytes = scale_bytes,
       .rows = block.rows,
       .first_column = 0,
       .columns = 0,
       .valid_columns = shape.intermediate},
      range, scratch);

  const RowSource* sources = call.arena.mine<RowSource>(RegionId::row_source) + block.first_row;
  const float* weights = call.arena.mine<float>(RegionId::row_weight) + block.first_row;
  const std::int64_t columns = min64(call.plan.gemm2_columns, shape.hidden - first_column);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const RowSource& source = sources[r];
    call.kernels.finish_row(
        {.sums = scratch.sums.floats() + r * kStripLanes,
         .strip_stride = call.kernels.padded_rows(block.rows) * kStripLanes,
         .columns = columns,
         .bias = expert.down_bias == nullptr ? nullptr : expert.down_bias + first_column,
         .weight = weights[r],
         .out = call.arena.at<BFloat16>(RegionId::combine, source.rank) +
                (source.slot * shape.max_tokens + source.token) * shape.hidden + first_column});
  }
  scratch.tally.pushed_bytes += block.rows * columns * std::int64_t{sizeof(BFloat16)};
}

std::int64_t gemm_scratch_bytes(const Plan& plan, const VectorKernels& kernels) {
  const ScratchFloats floats = scratch_floats(plan, kernels);
  return (floats.panel + floats.sums + floats.activations) * std::int64_t{sizeof(float)};
}

void size_gemm_scratch(const Plan& plan, const VectorKernels& kernels, WorkerScratch& scratch) {
  const auto memory = [](std::int64_t floats) {
    return PageMemory(floats * std::int64_t{sizeof(float)}, "a worker's scratch");
  };
  const ScratchFloats floats = scratch_floats(plan, kernels);
  scratch.panel = memory(floats.panel);
  scratch.sums = memory(floats.sums);
  scratch.activations = memory(floats.activations);
}

}  // namespace megamoe
