// FP8 MQA logits: the scores by which a sparse attention chooses its keys. Many query heads share
// one key per position:
//
//   logits[i][j] = kv_scale[j] * sum over heads h of weight[i][h] * max(q[i][h] . kv[j], 0)
//
// for begin[i] <= j < end[i]. It stands beside the layer and shares nothing with it.
//
//   megamoe::MqaLogits cpu;
//   cpu.run({.queries = {.rows = s, .heads = 64, .head_dim = 128, .q = q, .weights = weights},
//            .keys = keys, .kv = kv, .kv_scales = scales},
//           {.logits = logits, .row_stride = keys});
//
// What all entries share:
// - q and kv are E4M3, contiguous. A NaN in q, kv, a weight or a scale makes the logits NaN that
//   use it, and no other.
// - Ranges: begin[i] below 0 counts as 0, end[i] above the number of keys as that number; end[i] <=
//   begin[i] is an empty row. Memory outside a row's range is read by no result.
// - Outside its range a row's columns [0, keys) are left as they are, or set to -infinity when
//   asked. Columns from `keys` to the row stride are never written.
// - A logit depends on its row and its key alone: not on the rows, keys, chunks, threads or
//   multiprocessors beside it. Equal calls give equal bits.
// - Zero rows, keys or sequences: nothing is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "megamoe/types.hpp"

namespace megamoe {

/// Of q and of kv. e2m1 (FP4) is known by name so that it can be refused by name.
enum class MqaFormat { e4m3, e2m1 };

/// Of the weights of heads.
enum class MqaWeightFormat { f32, f16 };

/// Of the result. bf16 is the f32 result rounded to nearest, ties to even.
enum class MqaLogitFormat { f32, bf16 };

/// What a row holds outside its range.
enum class MqaOutside { unspecified, minus_infinity };

/// The rows of queries. GPU entries take GPU pointers, q aligned to 16 bytes.
struct MqaQueries {
  std::int64_t rows = 0;
  std::int64_t heads = 0;        ///< 1 to 64
  std::int64_t head_dim = 0;     ///< 32, 64 or 128
  const std::byte* q = nullptr;  ///< [rows, heads, head_dim]
  MqaFormat format = MqaFormat::e4m3;
  const void* weights = nullptr;  ///< [rows, heads]
  MqaWeightFormat weight_format = MqaWeightFormat::f32;
};

/// Keys in one piece, the same for every row.
struct MqaLogitsInput {
  MqaQueries queries;
  std::int64_t keys = 0;          ///< at most 2^31 - 1
  const std::byte* kv = nullptr;  ///< [keys, head_dim]; GPU: aligned to 16 bytes
  MqaFormat kv_format = MqaFormat::e4m3;
  const float* kv_scales = nullptr;      ///< [keys]; GPU: aligned to 16 bytes
  const std::int32_t* begins = nullptr;  ///< [rows]; null: 0
  const std::int32_t* ends = nullptr;    ///< [rows]; null: `keys`
};

/// Keys of a block of a paged cache.
inline constexpr std::int64_t kMqaBlockKeys = 64;

/// per_sequence: [sequences], keys of the sequence with all its new tokens; new token n of next_n
/// sees the first length - (next_n - 1 - n). per_row: [sequences, next_n], each row's own number.
enum class MqaContextLengths { per_sequence, per_row };

/// Keys in blocks of 64, found through a table. Each row sees a beginning of its sequence.
struct PagedMqaLogitsInput {
  MqaQueries queries;  ///< rows = sequences * next_n, sequence by sequence
  std::int64_t sequences = 0;
  std::int64_t next_n = 1;  ///< new tokens of each sequence
  /// [blocks][64 * (head_dim + 4)] bytes: 64 x head_dim E4M3 values, then 64 f32 scales. GPU:
  /// aligned to 16 bytes.
  const std::byte* cache = nullptr;
  MqaFormat cache_format = MqaFormat::e4m3;
  std::int64_t blocks = 0;
  const std::int32_t* context_lengths = nullptr;
  MqaContextLengths lengths = MqaContextLengths::per_sequence;
  /// [sequences, max_blocks]: key j of sequence s is key j % 64 of block block_table[s][j / 64].
  /// Entries beyond a context are not read. An entry outside [0, blocks): Error{invalid_argument}
  /// on the CPU; NaN for its keys on the GPU, where nobody waits for the answer.
  const std::int32_t* block_table = nullptr;
  std::int64_t max_blocks = 0;
  /// Columns of the result; at most 64 * max_blocks. Contexts are clipped to [0, max_context].
  std::int64_t max_context = 0;
};

/// Where the logits go: [rows, keys], or [sequences * next_n, max_context].
struct MqaLogitsOutput {
  void* logits = nullptr;
  MqaLogitFormat format = MqaLogitFormat::f32;
  std::int64_t row_stride = 0;  ///< values from one row to the next; at least the columns
  MqaOutside outside = MqaOutside::unspecified;
};

/// Rows that are done at once when their logits must fit a buffer.
struct MqaChunk {
  std::int64_t first_row;
  std::int64_t rows;
};
/// Called chunk by chunk, in order, with the chunk's logits in the buffer: row r of the chunk
/// begins at value r * row_stride.
using MqaChunkConsumer = std::function<void(const MqaChunk& chunk)>;

/// A buffer that is used again for every chunk. It bounds the memory of a result of any size.
struct MqaChunkBuffer {
  MqaLogitsOutput output;  ///< its `logits` is the buffer
  std::int64_t bytes = 0;  ///< room for one row at least
};

struct MqaLogitsOptions {
  std::optional<std::int64_t> workers;            ///< threads; absent: the processors usable
  std::optional<InstructionSet> instruction_set;  ///< absent: the best that the machine has
};

/// On the CPU. The sum over head_dim, then that over heads, are chains of f32 fused multiply-adds
/// in ascending order: the bits are the same for every instruction set and number of workers. A
/// logit is infinite only if f32 cannot hold it. One call at a time.
class MqaLogits {
 public:
  /// Throws Error{unsupported} for an instruction set that the machine lacks.
  explicit MqaLogits(const MqaLogitsOptions& options = {});
  ~MqaLogits();
  MqaLogits(MqaLogits&&) noexcept;
  MqaLogits& operator=(MqaLogits&&) noexcept;

  /// Throws Error{invalid_argument}; Error{unsupported} for FP4.
  void run(const MqaLogitsInput& input, const MqaLogitsOutput& output);
  void run(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output);

  /// All rows through one buffer.
  void run(const MqaLogitsInput& input, const MqaChunkBuffer& buffer,
           const MqaChunkConsumer& consumer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Enqueues the call on `stream` (a cudaStream_t) of the current device, a GPU of compute
/// capability 9.0. All pointers are GPU pointers; they are read and written when the stream gets
/// there.
///
/// f32 weights: products of E4M3 are summed over head_dim by the tensor cores, over heads in f32.
///
/// f16 weights: faster. Every head of q is scaled by a power of two such that no dot product with
/// any E4M3 key can exceed 65,504, and the row's weights by another such that their magnitudes sum
/// to at most 1; products are rounded to f16 and summed over 8 heads (or 4, or 2, for 32 and 16
/// heads) in f16, then in f32, where both powers are undone. So finite inputs overflow nowhere in
/// between: a logit is infinite only if f32 (bf16) cannot hold it. The scaling rounds values of q
/// below 2^-6 of their new scale: at most 1.8e-3 of a head's sum of |q| times the key's largest
/// value, in practice 1e-4 of the logits; f16 adds some 4e-4.
///
/// Throws Error{invalid_argument} for shapes, null pointers and alignment; Error{unsupported} for
/// FP4, or in a build without CUDA.
void mqa_logits_on_gpu(const MqaLogitsInput& input, const MqaLogitsOutput& output, void* stream);
void mqa_logits_on_gpu(const PagedMqaLogitsInput& input, const MqaLogitsOutput& output,
                       void* stream);

/// All rows through one GPU buffer, in the order of the stream: `consumer` enqueues what reads a
/// chunk, on the same stream.
void mqa_logits_on_gpu(const MqaLogitsInput& input, const MqaChunkBuffer& buffer,
                       const MqaChunkConsumer& consumer, void* stream);

}  // namespace megamoe
