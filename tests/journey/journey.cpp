// Runs one small layer over two ranks and prints what one route left in every region of the arena:
// the generated parts of docs/token-journey.md. What no region keeps (sums, activations) is
// computed again with the same kernels, and must lead to the bytes that the regions hold.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.hpp"
#include "journey/one_row.hpp"
#include "journey/page.hpp"
#include "numerics/bf16.hpp"
#include "numerics/block_scale.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"
#include "routing/count_word.hpp"
#include "routing/placement.hpp"
#include "routing/round_robin.hpp"
#include "routing/slots.hpp"
#include "support/engine_group.hpp"

namespace megamoe::test {
namespace {

// The route that is followed: token kToken of rank kSource, at slot kSlot of its list.
constexpr int kSource = 1;
constexpr std::int64_t kToken = 4;
constexpr std::int64_t kSlot = 0;
constexpr int kRanks = 2;
constexpr std::int64_t kTokens[kRanks] = {4, 6};
LayerConfig layer_config() {
  LayerConfig config;
  config.hidden = 64;
  config.intermediate = 32;
  config.experts = 4;
  config.top_k = 2;
  config.max_tokens = 6;
  config.recipe = Recipe::fp8_fp4;
  return config;
}

/// One worker per rank: with more, places in the source lists depend on who counts first.
GroupSpec group_spec() {
  return {.config = layer_config(),
          .ranks = kRanks,
          .plan = {.workers = 1, .k1_workers = 1, .k2_workers = 1},
          .instruction_set = InstructionSet::scalar,
          .seed = 1};
}

class Journey {
 public:
  Journey();
  void print();

 private:
  void print_layer() const;
  void print_lists() const;
  void print_x() const;
  void print_counts() const;
  void print_source_list() const;
  void print_rows() const;
  void print_pull() const;
  void print_gemm1();
  void print_intermediate();
  void print_gemm2();
  void print_y() const;
  void print_signals() const;

  template <class T>
  const T* region(RegionId id, int rank) const {
    return arenas_[rank]->at<T>(id, rank, arenas_[rank]->layout()[id].banks == 2 ? kBank : 0);
  }
  SlotList list(int rank, std::int64_t token) const {
    const std::int64_t k = plan_.shape.top_k;
    return {region<std::int64_t>(RegionId::expert_ids, rank) + token * k,
            region<float>(RegionId::expert_weights, rank) + token * k, k, plan_.shape.experts};
  }
  std::int64_t count(std::int64_t rank) const {
    return static_cast<std::int64_t>(region<std::uint64_t>(
        RegionId::receive_count, owner_)[rank * plan_.shape.experts_per_rank() + local_]);
  }
  const std::uint32_t* source_list(std::int64_t rank) const {
    return region<std::uint32_t>(RegionId::source_list, owner_) +
           (local_ * kRanks + rank) * plan_.shape.max_tokens;
  }

  // The first call of an arena has number 1 and uses bank 1.
  static constexpr std::int64_t kBank = 1;

  EngineGroup group_;
  Plan plan_;
  std::vector<Input> inputs_;
  GroupResult result_;
  std::vector<Arena*> arenas_;
  std::int64_t expert_ = 0;    // of the route
  int owner_ = 0;              // the rank that has it
  std::int64_t local_ = 0;     // its index there
  std::int64_t position_ = 0;  // of the route in the source list
  std::int64_t block_ = 0;
  std::int64_t row_ = 0;  // in the pool
  PackedWeights weights_;
  std::vector<float> activations_;
};

Journey::Journey()
    : group_(group_spec()),
      plan_(make_plan(layer_config(), kRanks,
                      {.cores = 1, .instruction_set = InstructionSet::scalar}, group_spec().plan)),
      inputs_(group_.inputs({kTokens[0], kTokens[1]})),
      result_(group_.call(inputs_, Execution::fused)),
      weights_(plan_.shape) {
  result_.check();
  for (int rank = 0; rank < kRanks; ++rank) arenas_.push_back(&group_.arena(rank));
  expert_ = list(kSource, kToken).ids[kSlot];
  const ExpertHome home = home_of(plan_.shape, expert_);
  owner_ = static_cast<int>(home.rank);
  local_ = home.local_expert;
  weights_.pack(group_.weights(), owner_);
  const auto entry = static_cast<std::uint32_t>(kToken * plan_.shape.top_k + kSlot);
  position_ = std::find(source_list(kSource), source_list(kSource) + count(kSource), entry) -
              source_list(kSource);
  const std::uint64_t* totals = region<std::uint64_t>(RegionId::receive_total, owner_);
  for (std::int64_t e = 0; e < local_; ++e) {
    block_ += ceil_div(count_in(totals[e]), plan_.block_rows);
  }
  const std::int64_t of_expert =
      row_of_turn([&](std::int64_t r) { return count(r); }, kRanks, {kSource, position_});
  row_ = block_ * plan_.block_rows + of_expert;
  block_ += of_expert / plan_.block_rows;
}

void Journey::print() {
  print_layer();
  print_lists();
  print_x();
  print_counts();
  print_source_list();
  print_rows();
  print_pull();
  print_gemm1();
  print_intermediate();
  print_gemm2();
  print_y();
  print_signals();
}

void Journey::print_layer() const {
  const LayerShape& shape = plan_.shape;
  print_part("layer", fmt::format("H {} I {} E {} K {}, fp8_fp4, {} ranks, {} experts each\n"
                                  "tokens: {} at rank 0, {} at rank 1 (capacity {})\n"
                                  "BLOCK_M {}; tasks per block: {} pull, {} GEMM 1, {} GEMM 2\n"
                                  "pool: {} rows, {} blocks of {}; arena: {} bytes per rank\n",
                                  shape.hidden, shape.intermediate, shape.experts, shape.top_k,
                                  kRanks, shape.experts_per_rank(), kTokens[0], kTokens[1],
                                  shape.max_tokens, plan_.block_rows, plan_.walk.pull_parts,
                                  plan_.walk.gemm1_parts, plan_.walk.gemm2_parts, shape.pool_rows(),
                                  shape.pool_blocks(), kMinBlockRows, plan_.arena.bytes));
}

void Journey::print_lists() const {
  std::string text = "rank token   expert weight     expert weight\n";
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::int64_t t = 0; t < kTokens[rank]; ++t) {
      const SlotList slots = list(rank, t);
      text += fmt::format("{:>4} {:>5}   {:>6} {:<8.6f}   {:>6} {:<8.6f}{}\n", rank, t,
                          slots.ids[0], slots.weights[0], slots.ids[1], slots.weights[1],
                          rank == kSource && t == kToken ? "   <- followed: slot 0" : "");
    }
  }
  print_part("lists", text);
}

void Journey::print_x() const {
  const std::int64_t h = plan_.shape.hidden;
  const BFloat16* x = inputs_[kSource].x.data() + kToken * h;
  const auto* bytes = region<std::uint8_t>(RegionId::x, kSource) + kToken * h;
  const std::uint8_t scale =
      region<std::uint8_t>(RegionId::x_scales, kSource)[kToken * ceil_div(h, 32)];
  float largest = 0;
  for (int c = 0; c < 32; ++c) largest = std::max(largest, std::abs(to_float(x[c])));
  std::string text =
      fmt::format("columns 0 to 31: largest magnitude {}; scale byte {} = 2^{}; {} / 2^{} = {}\n",
                  float_text(largest), scale, scale - 127, float_text(largest), scale - 127,
                  float_text(largest * ue8m0_reciprocal(scale)));
  text += row_text("column", cells(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7},
                                   [](int c) { return fmt::format("{}", c); }));
  text += row_text("bf16 x", cells(x, [](BFloat16 v) { return float_text(to_float(v)); }));
  text += row_text("E4M3 byte", cells(bytes, [](int b) { return fmt::format("0x{:02x}", b); }));
  text += row_text("E4M3 value",
                   cells(bytes, [](std::uint8_t b) { return float_text(e4m3_to_float(b)); }));
  text += row_text("value * scale", cells(bytes, [&](std::uint8_t b) {
                     return float_text(e4m3_to_float(b) * ue8m0_to_float(scale));
                   }));
  print_part("x", text);
}

void Journey::print_counts() const {
  std::string text;
  for (std::int64_t e = 0; e < plan_.shape.experts; ++e) {
    text += fmt::format("rank {} send count[expert {}] = {}\n", kSource, e,
                        count_text(region<std::uint64_t>(RegionId::send_count, kSource)[e]));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    text += fmt::format("rank {} receive count[rank {}][local expert {}] = {}\n", owner_, rank,
                        local_, count(rank));
  }
  text += fmt::format("rank {} receive total[local expert {}] = {}\n", owner_, local_,
                      count_text(region<std::uint64_t>(RegionId::receive_total, owner_)[local_]));
  print_part("counts", text);
}

void Journey::print_source_list() const {
  std::string text;
  for (int rank = 0; rank < kRanks; ++rank) {
    text += fmt::format("rank {} source list[local expert {}][rank {}] =", owner_, local_, rank);
    for (std::int64_t p = 0; p < count(rank); ++p) text += fmt::format(" {}", source_list(rank)[p]);
    text += "\n";
  }
  text += fmt::format("position {} of rank {}: {} = token {} * K {} + slot {}\n", position_,
                      kSource, source_list(kSource)[position_], kToken, plan_.shape.top_k, kSlot);
  print_part("source list", text);
}

void Journey::print_rows() const {
  const auto counts = [&](std::int64_t r) { return count(r); };
  std::string text = "row of expert -> (rank, position) -> row of expert\n";
  for (std::int64_t row = 0; row < count(0) + count(1); ++row) {
    const Turn turn = turn_of_row(counts, kRanks, row);
    text += fmt::format("{:>13} -> ({}, {}) -> {}{}\n", row, turn.rank, turn.position,
                        row_of_turn(counts, kRanks, turn),
                        turn.rank == kSource && turn.position == position_ ? "   <- followed" : "");
  }
  text += fmt::format("block {} of the pool, pool row {}\n", block_, row_);
  print_part("rows", text);
}

void Journey::print_pull() const {
  const std::int64_t h = plan_.shape.hidden;
  const RowSource& source = region<RowSource>(RegionId::row_source, owner_)[row_];
  const auto* pulled = region<std::uint8_t>(RegionId::gemm1_input, owner_) + row_ * h;
  const auto* scales =
      region<std::uint8_t>(RegionId::gemm1_input_scales, owner_) + row_ * ceil_div(h, 32);
  const auto* sent = region<std::uint8_t>(RegionId::x, kSource) + kToken * h;
  if (std::memcmp(pulled, sent, static_cast<std::size_t>(h)) != 0) {
    fail(ErrorCode::internal, "the pulled row is not the row of x");
  }
  std::string text = fmt::format("rank {} row source[{}] = rank {}, token {}, slot {}\n", owner_,
                                 row_, source.rank, source.token, source.slot);
  text += fmt::format("rank {} row weight[{}] = {:.6f}\n", owner_, row_,
                      region<float>(RegionId::row_weight, owner_)[row_]);
  text += row_text(fmt::format("GEMM-1 input[{}]", row_),
                   cells(pulled, [](int b) { return fmt::format("0x{:02x}", b); }));
  text += fmt::format("GEMM-1 input scales[{}] = {} {}\n", row_, scales[0], scales[1]);
  text += fmt::format("block arrival[{}] = {}\n", block_,
                      region<std::uint32_t>(RegionId::block_arrival, owner_)[block_]);
  print_part("pull", text);
}

void Journey::print_gemm1() {
  const std::int64_t h = plan_.shape.hidden;
  const StripShape strips = weights_.expert(local_).strips.gemm1;
  const std::vector<float> sums = multiply_row(
      {.format = PanelFormat::e4m3_ue8m0_32,
       .values = region<std::byte>(RegionId::gemm1_input, owner_) + row_ * h,
       .row_stride_bytes = h,
       .scales = region<std::byte>(RegionId::gemm1_input_scales, owner_) + row_ * ceil_div(h, 32),
       .scale_row_stride_bytes = ceil_div(h, 32),
       .rows = 1,
       .first_column = 0,
       .columns = strips.chunks * kChunkColumns,
       .valid_columns = h},
      weights_.expert(local_).gemm1, strips);
  activations_ =
      activate_row(sums, strips.strips, region<float>(RegionId::row_weight, owner_)[row_]);
  const auto rounded = [](float v) { return float_text(to_float(to_bf16(v))); };
  const float* up = sums.data() + kHalfStripLanes;
  std::string text = row_text("gate sum (f32)", cells(sums, float_text));
  text += row_text("up sum (f32)", cells(up, float_text));
  text += row_text("gate (bf16)", cells(sums, rounded));
  text += row_text("up (bf16)", cells(up, rounded));
  text += row_text("silu(gate)*up*weight", cells(activations_, float_text));
  print_part("gemm1", text);
}

void Journey::print_intermediate() {
  const std::int64_t i = plan_.shape.intermediate;
  const auto* stored = region<std::uint8_t>(RegionId::gemm2_input, owner_) + row_ * i;
  const std::uint8_t scale = region<std::uint8_t>(RegionId::gemm2_input_scales, owner_)[row_];
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(i));
  std::uint8_t own_scale = 0;
  quantise_e4m3_group(activations_.data(), i, bytes.data(), own_scale);
  if (scale != own_scale || std::memcmp(stored, bytes.data(), bytes.size()) != 0) {
    fail(ErrorCode::internal, "the GEMM-2 input is not what the activations give");
  }
  float largest = 0;
  for (std::int64_t c = 0; c < i; ++c) largest = std::max(largest, std::abs(activations_[c]));
  std::string text =
      fmt::format("largest magnitude of the group {}; GEMM-2 input scales[{}] = {} = 2^{}\n",
                  float_text(largest), row_, scale, scale - 127);
  text += row_text(fmt::format("GEMM-2 input[{}]", row_),
                   cells(stored, [](int b) { return fmt::format("0x{:02x}", b); }));
  text += row_text("value * scale", cells(stored, [&](std::uint8_t b) {
                     return float_text(e4m3_to_float(b) * ue8m0_to_float(scale));
                   }));
  text += fmt::format("block readiness[{}] = {:#x}\n", block_,
                      region<std::uint64_t>(RegionId::block_readiness,
                                            owner_)[block_ * plan_.shape.readiness_words()]);
  print_part("intermediate", text);
}

void Journey::print_gemm2() {
  const std::int64_t h = plan_.shape.hidden;
  const std::int64_t i = plan_.shape.intermediate;
  const StripShape strips = weights_.expert(local_).strips.gemm2;
  const std::vector<float> sums =
      multiply_row({.format = PanelFormat::e4m3_ue8m0_128,
                    .values = region<std::byte>(RegionId::gemm2_input, owner_) + row_ * i,
                    .row_stride_bytes = i,
                    .scales = region<std::byte>(RegionId::gemm2_input_scales, owner_) + row_,
                    .scale_row_stride_bytes = 1,
                    .rows = 1,
                    .first_column = 0,
                    .columns = strips.chunks * kChunkColumns,
                    .valid_columns = i},
                   weights_.expert(local_).gemm2, strips);
  const BFloat16* pushed =
      region<BFloat16>(RegionId::combine, kSource) + (kSlot * plan_.shape.max_tokens + kToken) * h;
  if (!(pushed[0] == to_bf16(sums[0]))) {
    fail(ErrorCode::internal, "the pushed value is not the rounded sum of GEMM 2");
  }
  std::string text = row_text("sum (f32)", cells(sums, float_text));
  text += row_text(fmt::format("combine[{}][{}] (bf16)", kSlot, kToken),
                   cells(pushed, [](BFloat16 v) { return float_text(to_float(v)); }));
  text += row_text("its bits",
                   cells(pushed, [](BFloat16 v) { return fmt::format("0x{:04x}", v.bits); }));
  print_part("gemm2", text);
}

void Journey::print_y() const {
  const std::int64_t h = plan_.shape.hidden;
  const auto show = [](BFloat16 v) { return float_text(to_float(v)); };
  std::string text;
  for (std::int64_t s = 0; s < plan_.shape.top_k; ++s) {
    text += row_text(fmt::format("combine[{}][{}]", s, kToken),
                     cells(region<BFloat16>(RegionId::combine, kSource) +
                               (s * plan_.shape.max_tokens + kToken) * h,
                           show));
  }
  text += row_text(fmt::format("y[{}] at rank {}", kToken, kSource),
                   cells(result_.y[kSource].data() + kToken * h, show));
  const std::vector<float> expected = group_.reference(inputs_[kSource]);
  text += row_text("f64 reference", cells(expected.data() + kToken * h, float_text));
  print_part("y", text);
}

void Journey::print_signals() const {
  std::string text;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto* words = region<std::uint64_t>(RegionId::barrier, rank);
    const auto* tickets = region<TicketWord>(RegionId::ticket, rank);
    text += fmt::format(
        "rank {}: call state {}; barrier A {:#x} {:#x}; barrier B {:#x} {:#x}; fused ticket {}\n",
        rank, region<CallState>(RegionId::call_state, rank)->call, words[0], words[1],
        words[kRanks], words[kRanks + 1], tickets[static_cast<int>(Ticket::fused)].next);
  }
  print_part("signals", text);
}

}  // namespace
}  // namespace megamoe::test

int main() {
  try {
    megamoe::test::Journey().print();
  } catch (const std::exception& error) {
    fmt::print(stderr, "journey: {}\n", error.what());
    return 1;
  }
  return 0;
}
