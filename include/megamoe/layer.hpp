// One mixture-of-experts layer, ready to run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megamoe/group.hpp"
#include "megamoe/types.hpp"
#include "megamoe/weights.hpp"

namespace megamoe {

/// What a user may decide instead of the plan. Absent: the plan decides. A backend refuses what it
/// has no use for.
struct LayerOptions {
  /// CPU: threads of a fused or staged call (default: cores / ranks, at least 1). CUDA: thread
  /// blocks, each on a multiprocessor of its own (default: the rank's share of the device).
  /// On CUDA the split's K3 has them too.
  std::optional<std::int64_t> workers;
  /// Of the split's K1 (dispatch and GEMM 1) and K2 (GEMM 2), which run at once: threads, on CUDA
  /// thread blocks, together no more than the rank's share of the device.
  std::optional<std::int64_t> k1_workers;
  std::optional<std::int64_t> k2_workers;
  /// BLOCK_M. CPU: 16, 32, 64, 96, 128 or 192. CUDA: 16 to 176 in steps of 16, instead of a choice
  /// for each call.
  std::optional<std::int64_t> block_rows;
  std::optional<InstructionSet> instruction_set;  ///< default: the best that the machine has
  /// CPU: whether this rank's threads, the caller's during a call included, stay on the rank's part
  /// of the processors that the ranks of the host may use (default: on hosts of several NUMA
  /// nodes). Ranks that a launcher bound to processors of their own stay on those in any case.
  std::optional<bool> bind_threads;
};

/// The input of one call: views into this rank's arena, to be filled by the caller before
/// forward(). In a group of CUDA devices they are memory of the rank's device, and so is x_bf16:
/// what fills them is enqueued before the call, or over.
struct Batch {
  std::int64_t tokens = 0;
  std::span<std::byte> x;  ///< [tokens, H] in the recipe's format
  std::span<std::byte>
      x_scales;  ///< [tokens, ceil(H / 32)] UE8M0, or [tokens, ceil(H / 128)] f32, or empty
  std::span<std::int64_t> experts;  ///< [tokens, top_k]: negative = no route
  std::span<float> weights;         ///< [tokens, top_k]
  /// Set this to the caller's own bf16 x [tokens, H] instead of filling x and x_scales: forward()
  /// converts it, with the bits that a conversion by the caller would have had.
  std::span<const BFloat16> x_bf16;
};

/// What a call did at this rank. Times are wall time of the rank, busy times are sums over its
/// workers. On CUDA only total_ns is measured, from the call's beginning on its stream to its end,
/// and the other times are 0; rows and routes are read from the arena, so a report is asked for
/// before the arena's next call.
struct CallReport {
  std::int64_t tokens = 0;
  std::int64_t routes = 0;  ///< of this rank's tokens
  std::vector<std::int64_t>
      rows_per_expert;            ///< of this rank's local experts, then the shared ones
  std::int64_t dispatch_ns = 0;   ///< convert, count, scatter, barrier A
  std::int64_t compute_ns = 0;    ///< pull, GEMM 1, GEMM 2, push
  std::int64_t barrier_b_ns = 0;  ///< waiting until every rank has pushed
  std::int64_t combine_ns = 0;
  std::int64_t total_ns = 0;
  std::int64_t pull_busy_ns = 0;
  std::int64_t gemm1_busy_ns = 0;
  std::int64_t gemm2_busy_ns = 0;
  std::int64_t pulled_bytes = 0;  ///< rows and scales that came from other ranks and this one
  std::int64_t pushed_bytes = 0;  ///< results that went to other ranks and this one
  std::int64_t weight_bytes = 0;  ///< packed bytes of the experts that had rows
  std::int64_t flops = 0;         ///< 6 * H * I per row
};

class Layer;
class LayerState;
class GraphState;
struct PackedState;

/// A rank's packed experts, as layers share them: of Layer::packed_experts(). A handle, whose
/// memory lives as long as one of them or a layer that was made with it.
class PackedExperts {
 private:
  friend class Layer;
  explicit PackedExperts(std::shared_ptr<const PackedState> state) : state_(std::move(state)) {}
  std::shared_ptr<const PackedState> state_;
};

struct GraphOptions {
  Execution execution = Execution::fused;
  /// bf16 [max_tokens, H], the caller's: every replay writes its first rows.
  std::span<BFloat16> y;
};

/// A call whose buffers are settled once: the arena's batch in, one y out. What may change between
/// replays is read anew by each: x, ids, weights, the number of tokens, refreshed weights. Nothing
/// is to be reset. Outlived by its Layer. On CUDA it is a CUDA graph, whose tile is chosen
/// for max_tokens unless LayerOptions::block_rows says another.
class Graph {
 public:
  /// As Layer::forward on the batch of `tokens` tokens, tokens <= max_tokens; rows of y from
  /// `tokens` on are untouched. Returns when y is complete.
  void replay(std::int64_t tokens);

  /// CUDA: enqueues that on a stream and returns; see Layer::wait.
  void replay(std::int64_t tokens, void* stream);

 private:
  friend class Layer;
  explicit Graph(std::shared_ptr<GraphState> state) : state_(std::move(state)) {}
  std::shared_ptr<GraphState> state_;
};

/// A layer of a group. Construction is collective: every rank calls it, in the same order, and all
/// compare shape, recipe and version first. Calls are collective too. Forward only: there are no
/// gradients.
///
/// Layers of a group with the same capacity and sizes share one arena, so their batches are the
/// same memory.
///
/// In a group of CUDA devices a fused call is one kernel, a split one three: K1 and K2 at once on
/// multiprocessors of their own, then K3, combine; a staged one the same three one after another. A
/// stream is a cudaStream_t of the rank's device as void*, null for the device's default stream.
/// Calls of a rank follow each other, whatever their streams. Ranks that one process drives from
/// one thread enqueue their calls, all of them, before any is waited for, and on streams of their
/// own. Nothing that waits for a device (cudaFree, the end of a Layer) belongs between the calls of
/// its ranks.
class Layer {
 public:
  /// Validates, plans, and packs this rank's experts (peak memory: the packed form and one expert).
  /// `weights` are in host memory and may go afterwards.
  /// Throws Error{invalid_argument} for sizes that do not fit, Error{mismatch} that names what the
  /// ranks disagree on, Error{out_of_memory}, Error{unsupported}, Error{deadline}.
  Layer(const LayerConfig& config, const LayerWeights& weights, const Group& group,
        const LayerOptions& options = {});

  /// The same, with this rank's experts from a file that save_packed wrote for the same config,
  /// backend, ranks and rank.
  Layer(const LayerConfig& config, const std::filesystem::path& packed, const Group& group,
        const LayerOptions& options = {});

  /// The same, with the experts that another layer of this rank packed, in the same memory:
  /// capacity, top_k, activation and options may be others, and so may the group if rank and ranks
  /// are equal (and the device, on CUDA). Throws Error{mismatch} for experts that were packed for
  /// something else.
  Layer(const LayerConfig& config, const PackedExperts& packed, const Group& group,
        const LayerOptions& options = {});

  Layer(Layer&&) noexcept;
  Layer& operator=(Layer&&) noexcept;
  ~Layer();

  /// Views for `tokens` tokens. Throws Error{invalid_argument} when they exceed
  /// config().max_tokens.
  Batch batch(std::int64_t tokens) const;

  /// y[t] = sum over slots of weight * expert(x[t]); y is bf16 [tokens, H] in the caller's memory
  /// (the device's in a group of CUDA devices) and is written whole. Returns when y is complete.
  /// The same bits for every execution, rank count, batch composition and timing.
  ///
  /// An argument that is refused here, or by batch(), is no call: nothing has begun, nobody is
  /// told, and the group stays usable. The others' calls wait for this rank, which may call again
  /// with what is right; when it leaves the group instead they end with Error{peer_lost}, and when
  /// it does neither, with Error{deadline}; both name it.
  ///
  /// An id beyond the experts is no route: that token's y is NaN, the call completes on every rank,
  /// and this rank throws Error{invalid_argument} that names rank, token, slot and value; the group
  /// stays usable. When a call that had begun ends with Error{deadline}, {peer_lost}, {mismatch} or
  /// {aborted}, y is NaN and the group refuses further calls: make a new one.
  ///
  /// In a group of CUDA devices: on the rank's own stream, after what the device's default stream
  /// has been given.
  void forward(const Batch& batch, std::span<BFloat16> y, Execution execution = Execution::fused);

  /// CUDA: enqueues the call on a stream and returns. What only the device can see is thrown by
  /// wait() and poll(). The stream may be capturing a CUDA graph.
  void forward(const Batch& batch, std::span<BFloat16> y, void* stream,
               Execution execution = Execution::fused);

  /// CUDA: the same with the number of tokens read from device memory when the call begins, so that
  /// a captured call serves any number of tokens: 0 to max_tokens, larger ones count as max_tokens.
  /// `batch` says how many are expected, which chooses the tile; y, and x_bf16 if it is set, have
  /// max_tokens rows.
  void forward_counted(const std::int32_t* tokens, const Batch& batch, std::span<BFloat16> y,
                       void* stream, Execution execution = Execution::fused);

  /// Waits for this rank's calls so far, then throws what they ran into: as forward(). Calls that
  /// the caller captured and replays are the caller's to wait for; wait() then throws what they ran
  /// into. A call that does not end within twice the group's deadline is an Error{deadline}: others
  /// hold the device. Nothing to do on the CPU.
  void wait();

  /// Whether they are over; if so, throws as wait() does.
  bool poll();

  /// Settles execution and y for replays. Throws Error{invalid_argument} when y does not hold
  /// max_tokens rows.
  Graph graph(const GraphOptions& options);

  /// Replaces this rank's weights in place, keeping plan and arena. Waits for this layer's calls;
  /// layers that share its packed experts get the new ones too, and must not be running.
  /// When it throws for what is wrong with them, the layer keeps the weights that it had.
  void refresh(const LayerWeights& weights);

  /// This rank's packed experts, for other layers to share.
  PackedExperts packed_experts() const;

  /// Writes this rank's packed experts.
  void save_packed(const std::filesystem::path& file) const;

  const LayerConfig& config() const;
  /// What was planned and why, in words.
  std::string explain() const;
  /// The last call of this layer at this rank that was waited for and ran to its end; one whose ids
  /// were beyond the experts did.
  const CallReport& report() const;

 private:
  std::unique_ptr<LayerState> state_;
};

/// Writes x [tokens, hidden] in a recipe's format, as forward() does with Batch::x_bf16. Sizes as
/// in Batch, in host memory.
void convert_x(Recipe recipe, std::int64_t hidden, std::span<const BFloat16> x,
               std::span<std::byte> values, std::span<std::byte> scales);

}  // namespace megamoe
