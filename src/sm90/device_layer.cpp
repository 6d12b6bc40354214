#include "sm90/device_layer.hpp"

#include <array>
#include <cstring>

#include "base/check.hpp"
#include "device/cuda.hpp"
#include "plan/plan.hpp"
#include "routing/placement.hpp"
#include "sm90/launch.hpp"
#include "sm90/pack_weights.hpp"
#include "sm90/params.hpp"
#include "sm90/prepare.hpp"

namespace megamoe::sm90 {

struct RankWeights {
  PackedWeights w1;
  PackedWeights w2;
  std::int64_t rounded = 0;
};

struct DeviceLayer::State {
  explicit State(std::shared_ptr<RankWeights> shared) : weights(std::move(shared)) {}

  LayerConfig config;
  LayerShape shape;
  DeviceLayerOptions options;
  GpuArenaLayout layout;
  GpuMachine machine;
  std::shared_ptr<RankWeights> weights;
  PackedWeights& w1 = weights->w1;
  PackedWeights& w2 = weights->w2;
  device::Memory scratch;
  device::Memory tokens_word;  ///< T of a counted call, within its bounds
  device::Stream reading;      ///< for reading records: waits for no call
  std::optional<Launcher> launcher;

  template <class T>
  T* region(GpuRegion id) const {
    return reinterpret_cast<T*>(options.arenas[static_cast<std::size_t>(options.rank)] +
                                layout[id].offset_bytes);
  }
  void allocate();
  void pack(const LayerWeights& given);
  KernelParams params(const GpuPlan& plan) const;
  void prepare(const GpuCall& call, KernelParams& params, void* stream) const;
  FaultWords read_faults(int rank) const;
};

void DeviceLayer::State::allocate() {
  if (options.weights == nullptr) {
    w1 = allocate_packed(packed_gemm1(shape), shape.pool_experts(), "packed W1");
    w2 = allocate_packed(packed_gemm2(shape), shape.pool_experts(), "packed W2");
  }
  std::int64_t scratch_bytes = 16;
  for (const KernelShape& kernel : kKernelShapes) {
    if (kernel.gemm1_tiles() == 2) {
      scratch_bytes =
          max64(scratch_bytes, machine.multiprocessors * kernel.tokens * kernel.math_threads());
    }
  }
  scratch = device::Memory(scratch_bytes, "activations between tiles");
  tokens_word = device::Memory(sizeof(std::int32_t), "the number of tokens");
  launcher.emplace(weight_format(shape.recipe) == WeightFormat::fp8);
  load_preparations();
}

void DeviceLayer::State::pack(const LayerWeights& given) {
  check_weights(shape, options.rank, given);
  WeightPacker packer(shape);
  for (PackedWeights* packed : {&w1, &w2}) {
    packed->has_bias = PackedWeights::Bias::none;
    packed->bias.fill(0);
  }
  for_each_pool_expert(shape, options.rank, given, [&](const PoolExpert& expert) {
    packer.pack(expert.weights, expert.number, w1, w2, expert.name);
  });
  weights->rounded = packer.rounded_values();  // waits until all is packed
}

KernelParams DeviceLayer::State::params(const GpuPlan& plan) const {
  KernelParams p{};
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
  p.shared_experts = static_cast<std::int32_t>(shape.shared_experts);
  p.max_tokens = static_cast<std::int32_t>(shape.max_tokens);
  p.rank = options.rank;
  p.ranks = static_cast<std::int32_t>(shape.ranks);
  p.groups = static_cast<std::int32_t>(shape.intermediate_groups());
  p.row_tiles2 = static_cast<std::int32_t>(w2.shape.row_tiles());
  p.experts_per_wave = static_cast<std::int32_t>(plan.experts_per_wave);
  p.layer = options.layer;
  p.deadline_ns = options.deadline.count();
  p.activation = make_activation_rule(config.activation, config.activation_limit);
  return p;
}

DeviceLayer::DeviceLayer(const LayerConfig& config, const DeviceLayerOptions& options)
    : state_(std::make_unique<State>(
          options.weights != nullptr ? options.weights : std::make_shared<RankWeights>())) {
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
  s.machine.multiprocessors = options.multiprocessors.value_or(device::multiprocessors());
  s.machine.blocks = options.blocks.value_or(static_cast<int>(s.machine.multiprocessors));
  s.allocate();
}

DeviceLayer::DeviceLayer(const LayerConfig& config, const LayerWeights& weights,
                         const DeviceLayerOptions& options)
    : DeviceLayer(config, options) {
  state_->pack(weights);
}
DeviceLayer::~DeviceLayer() = default;
DeviceLayer::DeviceLayer(DeviceLayer&&) noexcept = default;

GpuBatch DeviceLayer::batch() const {
  return {state_->region<std::byte>(GpuRegion::x), state_->region<std::byte>(GpuRegion::x_scales),
          state_->region<std::int64_t>(GpuRegion::expert_ids),
          state_->region<float>(GpuRegion::expert_weights)};
}

GpuPlan DeviceLayer::plan(std::int64_t tokens, const GpuOverrides& overrides) const {
  return make_gpu_plan(state_->shape, tokens, state_->machine, overrides);
}

void DeviceLayer::State::prepare(const GpuCall& call, KernelParams& params, void* stream) const {
  params.tokens = static_cast<std::int32_t>(call.tokens);
  params.y = reinterpret_cast<__nv_bfloat16*>(call.y);
  const std::int32_t* word = nullptr;
  if (call.tokens_word != nullptr) {
    // The kernel knows the arena's capacity, which is rounded up: y has no more than max_tokens.
    word = params.tokens_word = tokens_word.as<std::int32_t>();
    launch_clamp_tokens(tokens_word.as<std::int32_t>(), call.tokens_word, config.max_tokens,
                        stream);
  }
  if (call.x_bf16 != nullptr) {
    launch_quantise({.x = call.x_bf16,
                     .hidden = shape.hidden,
                     .tokens = word == nullptr ? call.tokens : config.max_tokens,
                     .word = word,
                     .values = region<std::byte>(GpuRegion::x),
                     .scales = region<std::byte>(GpuRegion::x_scales),
                     .f32_scales = x_format(config.recipe) == XFormat::e4m3_f32_128},
                    stream);
  }
  device::check(cudaGetLastError(), "preparing a call");
}

void DeviceLayer::enqueue(const GpuCall& call, void* stream) {
  check_argument(call.tokens >= 0 && call.tokens <= state_->config.max_tokens,
                 "tokens is {}: 0 to max_tokens = {} is wanted", call.tokens,
                 state_->config.max_tokens);
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  check_argument(aligned(call.y) && aligned(call.x_bf16),
                 "y begins at {} and x_bf16 at {}: addresses aligned to 16 bytes are wanted",
                 fmt::ptr(call.y), fmt::ptr(call.x_bf16));
  const GpuPlan plan = this->plan(call.tokens, call.overrides);
  KernelParams params = state_->params(plan);
  state_->prepare(call, params, stream);
  state_->launcher->enqueue(plan, params, static_cast<device::StreamHandle>(stream));
}

void DeviceLayer::forward(std::int64_t tokens, BFloat16* y, void* stream,
                          const GpuOverrides& overrides) {
  enqueue({.tokens = tokens, .y = y, .overrides = overrides}, stream);
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
    case WaitSignal::k1_open:
      return "K1 to pass barrier A, number";
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

FaultWords DeviceLayer::State::read_faults(int rank) const {
  FaultWords words;
  const std::byte* const arena = options.arenas[static_cast<std::size_t>(rank)];
  reading.copy(&words, arena + layout[GpuRegion::fault].offset_bytes, sizeof words);
  reading.wait();
  return words;
}

void DeviceLayer::wait(void* stream) {
  device::check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "the kernels of a call");
  check();
}

void DeviceLayer::check() {
  const State& s = *state_;
  const FaultWords mine = s.read_faults(s.options.rank);
  if (mine.fault.abort != 0) {
    // Whoever came second may have told the ranks before the first had written its record.
    FaultWords first = s.read_faults(0);
    for (int look = 0; look < 1000 && first.fault.complete == 0; ++look) first = s.read_faults(0);
    throw_fault(first.fault);
  }
  if (mine.bad_id.complete == 0) return;
  const BadId none{};
  s.reading.copy(&s.region<FaultWords>(GpuRegion::fault)->bad_id, &none, sizeof none);
  s.reading.wait();
  fail(ErrorCode::invalid_argument,
       "rank {}, token {}, slot {}: expert {} does not exist, there are {}; that token's y is NaN",
       s.options.rank, mine.bad_id.token, mine.bad_id.slot, mine.bad_id.value, s.config.experts);
}

std::vector<std::int64_t> DeviceLayer::rows_per_expert() const {
  const State& s = *state_;
  const std::int64_t experts = s.shape.experts_per_rank();
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(s.shape.ranks * experts));
  s.reading.copy(counts.data(), s.region<std::uint32_t>(GpuRegion::receive_count),
                 static_cast<std::int64_t>(counts.size() * sizeof counts[0]));
  s.reading.wait();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(local_experts(s.shape, s.options.rank)),
                                 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t expert = i % static_cast<std::size_t>(experts);
    if (expert < rows.size()) rows[expert] += counts[i];
  }
  return rows;
}

void DeviceLayer::refresh(const LayerWeights& weights) {
  state_->pack(weights);
}

namespace {

/// Every piece of packed weights by name; the same for saving and loading.
template <class Weights, class Visit>
void for_each_piece(Weights& w1, Weights& w2, const Visit& visit) {
  visit("gemm1.tiles", w1.tiles);
  visit("gemm1.row_factors", w1.row_factors);
  visit("gemm1.bias", w1.bias);
  visit("gemm2.tiles", w2.tiles);
  visit("gemm2.row_factors", w2.row_factors);
  visit("gemm2.bias", w2.bias);
}

}  // namespace

std::vector<PackedPiece> DeviceLayer::packed() const {
  std::vector<PackedPiece> pieces;
  for_each_piece(state_->w1, state_->w2, [&](const char* name, const device::Memory& memory) {
    PackedPiece piece{name, std::vector<std::byte>(static_cast<std::size_t>(memory.bytes()))};
    memory.copy_to(piece.bytes.data(), memory.bytes());
    pieces.push_back(std::move(piece));
  });
  const auto number = [&](const char* name, std::int64_t value) {
    PackedPiece piece{name, std::vector<std::byte>(sizeof value)};
    std::memcpy(piece.bytes.data(), &value, sizeof value);
    pieces.push_back(std::move(piece));
  };
  number("gemm1.has_bias", state_->w1.has_bias == PackedWeights::Bias::some ? 1 : 0);
  number("gemm2.has_bias", state_->w2.has_bias == PackedWeights::Bias::some ? 1 : 0);
  number("rounded", state_->weights->rounded);
  return pieces;
}

void DeviceLayer::load(
    const std::function<std::span<const std::byte>(const std::string& name)>& piece) {
  const auto sized = [&](const char* name, std::int64_t bytes) {
    const std::span<const std::byte> found = piece(name);
    if (static_cast<std::int64_t>(found.size()) != bytes) {
      fail(ErrorCode::format, "{} of packed weights has {} bytes: {} are wanted", name,
           found.size(), bytes);
    }
    return found;
  };
  for_each_piece(state_->w1, state_->w2, [&](const char* name, device::Memory& memory) {
    memory.copy_from(sized(name, memory.bytes()).data(), memory.bytes());
  });
  const auto number = [&](const char* name) {
    std::int64_t value = 0;
    std::memcpy(&value, sized(name, sizeof value).data(), sizeof value);
    return value;
  };
  const auto bias = [&](const char* name) {
    return number(name) != 0 ? PackedWeights::Bias::some : PackedWeights::Bias::none;
  };
  state_->w1.has_bias = bias("gemm1.has_bias");
  state_->w2.has_bias = bias("gemm2.has_bias");
  state_->weights->rounded = number("rounded");
}

std::shared_ptr<RankWeights> DeviceLayer::weights() const {
  return state_->weights;
}

std::int64_t DeviceLayer::rounded_weights() const {
  return state_->weights->rounded;
}

std::int64_t DeviceLayer::expert_bytes() const {
  return state_->w1.shape.bytes() + state_->w2.shape.bytes();
}

}  // namespace megamoe::sm90
