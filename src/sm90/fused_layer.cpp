#include "sm90/fused_layer.hpp"

#include <array>

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "plan/plan.hpp"
#include "routing/placement.hpp"
#include "sm90/kernels.hpp"
#include "sm90/pack_weights.hpp"
#include "sm90/params.hpp"

namespace megamoe::sm90 {

const void* fused_kernel_of(const KernelShape& shape) {
  switch (shape.tokens) {
    case 16:
      return fused_kernel_16();
    case 32:
      return fused_kernel_32();
    case 48:
      return fused_kernel_48();
    case 64:
      return fused_kernel_64();
    case 80:
      return fused_kernel_80();
    case 96:
      return fused_kernel_96();
    case 112:
      return fused_kernel_112();
    case 128:
      return fused_kernel_128();
    case 144:
      return fused_kernel_144();
    case 160:
      return fused_kernel_160();
    default:
      return fused_kernel_176();
  }
}

struct GpuArena::State {
  GpuArenaLayout layout;
  device::Memory memory;
};

GpuArena::GpuArena(const LayerConfig& config, std::int64_t ranks)
    : state_(std::make_unique<State>()) {
  state_->layout = make_gpu_arena_layout(make_shape(config, ranks));
  state_->memory = device::Memory(state_->layout.bytes, "the arena");
  for (const GpuRegionSpan& region : state_->layout.regions) {
    if (region.kind != RegionKind::control) continue;
    device::check(
        cudaMemset(base() + region.offset_bytes, 0, static_cast<std::size_t>(region.bytes())),
        "clearing control words");
  }
  device::check(cudaDeviceSynchronize(), "clearing control words");
}
GpuArena::~GpuArena() = default;
GpuArena::GpuArena(GpuArena&&) noexcept = default;

std::byte* GpuArena::base() const {
  return state_->memory.get();
}
const GpuArenaLayout& GpuArena::layout() const {
  return state_->layout;
}

void GpuArena::poison(int byte) {
  for (const GpuRegionSpan& region : state_->layout.regions) {
    if (region.kind != RegionKind::data) continue;
    device::check(
        cudaMemset(base() + region.offset_bytes, byte, static_cast<std::size_t>(region.bytes())),
        "poisoning data");
  }
  device::check(cudaDeviceSynchronize(), "poisoning data");
}

struct FusedLayer::State {
  LayerConfig config;
  LayerShape shape;
  FusedOptions options;
  GpuArenaLayout layout;
  GpuMachine machine;
  PackedWeights w1;
  PackedWeights w2;
  device::Memory scratch;
  std::int64_t rounded = 0;

  template <class T>
  T* region(GpuRegion id) const {
    return reinterpret_cast<T*>(options.arenas[static_cast<std::size_t>(options.rank)] +
                                layout[id].offset_bytes);
  }
  void pack(const LayerWeights& weights);
  FusedParams params(const GpuPlan& plan) const;
  void launch(const GpuPlan& plan, FusedParams& params, void* stream) const;
};

void FusedLayer::State::pack(const LayerWeights& weights) {
  const std::int64_t local = local_experts(shape, options.rank);
  WeightPacker packer(shape);
  w1 = packer.allocate_gemm1(local);
  w2 = packer.allocate_gemm2(local);
  for (std::int64_t e = 0; e < local; ++e) {
    const std::int64_t expert = expert_of(shape, {options.rank, e});
    packer.pack(weights.experts[static_cast<std::size_t>(expert)], e, w1, w2,
                fmt::format("expert {}", expert));
  }
  rounded = packer.rounded_values();
}

FusedParams FusedLayer::State::params(const GpuPlan& plan) const {
  FusedParams p{};
  p.arena = options.arenas[static_cast<std::size_t>(options.rank)];
  for (std::size_t r = 0; r < options.arenas.size(); ++r) {
    p.peer_offset[r] = options.arenas[r] - p.arena;
  }
  for (std::size_t i = 0; i < kGpuRegions; ++i) {
    p.region_offset[i] = layout.regions[i].offset_bytes;
    p.bank_bytes[i] = layout.regions[i].bank_bytes;
  }
  const auto pointers = [](const PackedWeights& w) {
    return WeightPointers{w.tiles.get(), w.row_factors.as<float>(),
                          w.has_bias == PackedWeights::Bias::some ? w.bias.as<float>() : nullptr};
  };
  p.w1 = pointers(w1);
  p.w2 = pointers(w2);
  p.scratch = scratch.as<float4>();
  p.hidden = static_cast<std::int32_t>(shape.hidden);
  p.top_k = static_cast<std::int32_t>(shape.top_k);
  p.experts = static_cast<std::int32_t>(shape.experts);
  p.experts_per_rank = static_cast<std::int32_t>(shape.experts_per_rank());
  p.max_tokens = static_cast<std::int32_t>(shape.max_tokens);
  p.rank = options.rank;
  p.ranks = static_cast<std::int32_t>(shape.ranks);
  p.groups = static_cast<std::int32_t>(shape.intermediate_groups());
  p.row_tiles2 = static_cast<std::int32_t>(w2.shape.row_tiles());
  p.experts_per_wave = static_cast<std::int32_t>(plan.experts_per_wave);
  p.layer = options.layer;
  p.deadline_ns = options.deadline.count();
  p.activation = make_activation_rule(config.activation, config.activation_limit);
  p.shared = plan.shared;
  return p;
}

void FusedLayer::State::launch(const GpuPlan& plan, FusedParams& params, void* stream) const {
  void* arguments[] = {&params};
  device::check(cudaLaunchCooperativeKernel(
                    fused_kernel_of(plan.kernel), dim3(static_cast<unsigned>(plan.blocks)),
                    dim3(static_cast<unsigned>(plan.kernel.threads())), arguments,
                    static_cast<std::size_t>(plan.shared.bytes), static_cast<cudaStream_t>(stream)),
                "launching the fused kernel");
}

FusedLayer::FusedLayer(const LayerConfig& config, const LayerWeights& weights,
                       const FusedOptions& options)
    : state_(std::make_unique<State>()) {
  const auto ranks = static_cast<std::int64_t>(options.arenas.size());
  validate(config);
  validate_gpu(config, ranks);
  check_argument(options.rank >= 0 && options.rank < ranks, "rank is {}: 0 to {} is wanted",
                 options.rank, ranks - 1);
  State& s = *state_;
  s.config = config;
  s.shape = make_shape(config, ranks);
  s.options = options;
  s.layout = make_gpu_arena_layout(s.shape);
  s.machine.blocks = options.blocks.value_or(device::multiprocessors());
  s.pack(weights);
  std::int64_t scratch = 16;
  for (const KernelShape& kernel : kKernelShapes) {
    // Loading every kernel now keeps lazy loading, which waits for the device, out of the calls.
    device::check(
        cudaFuncSetAttribute(fused_kernel_of(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kMaxSharedBytes)),
        "preparing the fused kernel");
    if (kernel.gemm1_tiles() == 2) {
      scratch = max64(scratch, s.machine.blocks * kernel.tokens * kernel.math_threads());
    }
  }
  s.scratch = device::Memory(scratch, "activations between tiles");
}
FusedLayer::~FusedLayer() = default;
FusedLayer::FusedLayer(FusedLayer&&) noexcept = default;

GpuBatch FusedLayer::batch() const {
  return {state_->region<std::byte>(GpuRegion::x), state_->region<std::byte>(GpuRegion::x_scales),
          state_->region<std::int64_t>(GpuRegion::expert_ids),
          state_->region<float>(GpuRegion::expert_weights)};
}

GpuPlan FusedLayer::plan(std::int64_t tokens, const GpuOverrides& overrides) const {
  return make_gpu_plan(state_->shape, tokens, state_->machine, overrides);
}

void FusedLayer::forward(std::int64_t tokens, BFloat16* y, void* stream,
                         const GpuOverrides& overrides) {
  check_argument(tokens >= 0 && tokens <= state_->config.max_tokens,
                 "tokens is {}: 0 to max_tokens = {} is wanted", tokens, state_->config.max_tokens);
  const GpuPlan plan = this->plan(tokens, overrides);
  FusedParams params = state_->params(plan);
  params.tokens = static_cast<std::int32_t>(tokens);
  params.y = reinterpret_cast<__nv_bfloat16*>(y);
  state_->launch(plan, params, stream);
}

void FusedLayer::forward_counted(const std::int32_t* tokens, std::int64_t expected_tokens,
                                 BFloat16* y, void* stream) {
  const GpuPlan plan = this->plan(expected_tokens);
  FusedParams params = state_->params(plan);
  params.tokens_word = tokens;
  params.y = reinterpret_cast<__nv_bfloat16*>(y);
  state_->launch(plan, params, stream);
}

namespace {

const char* words_for(WaitSignal signal) {
  switch (signal) {
    case WaitSignal::scatter_of_blocks:
      return "the scatter of all thread blocks";
    case WaitSignal::barrier_a:
      return "barrier A of rank";
    case WaitSignal::block_arrival:
      return "the rows of block";
    case WaitSignal::block_readiness:
      return "the GEMM-1 results of block";
    case WaitSignal::barrier_b:
      return "barrier B of rank";
    default:
      return "a signal";
  }
}

[[noreturn]] void throw_fault(const DeviceFault& fault) {
  const auto signal = static_cast<WaitSignal>(fault.signal);
  if (signal == WaitSignal::barrier_a_layer) {
    fail(ErrorCode::mismatch,
         "rank {} runs layer {} and rank {} layer {} as call {}: all ranks must call the layers of "
         "a group in the same order",
         fault.rank, fault.wanted >> 32, fault.index, fault.seen >> 32, fault.wanted & 0xffffffffu);
  }
  fail(ErrorCode::deadline,
       "rank {} waited past its deadline for {} {}: saw {}, wanted {}; the group must be rebuilt",
       fault.rank, words_for(signal), fault.index, fault.seen, fault.wanted);
}

}  // namespace

void FusedLayer::wait(void* stream) {
  device::check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "the fused kernel");
  const auto read = [](const std::byte* arena, const GpuArenaLayout& layout) {
    FaultWords words;
    device::check(cudaMemcpy(&words, arena + layout[GpuRegion::fault].offset_bytes, sizeof words,
                             cudaMemcpyDeviceToHost),
                  "reading the fault record");
    return words;
  };
  const FaultWords mine =
      read(state_->options.arenas[static_cast<std::size_t>(state_->options.rank)], state_->layout);
  if (mine.fault.abort != 0) throw_fault(read(state_->options.arenas[0], state_->layout).fault);
  if (mine.bad_id.complete == 0) return;
  device::check(cudaMemset(&state_->region<FaultWords>(GpuRegion::fault)->bad_id, 0, sizeof(BadId)),
                "clearing a record");
  fail(ErrorCode::invalid_argument,
       "rank {}, token {}, slot {}: expert {} does not exist, there are {}; that token's y is NaN",
       state_->options.rank, mine.bad_id.token, mine.bad_id.slot, mine.bad_id.value,
       state_->config.experts);
}

std::int64_t FusedLayer::rounded_weights() const {
  return state_->rounded;
}

std::int64_t FusedLayer::expert_bytes() const {
  return state_->w1.shape.bytes() + state_->w2.shape.bytes();
}

}  // namespace megamoe::sm90
