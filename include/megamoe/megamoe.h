// The C face of megamoe, for languages that bind to C: the same layer as megamoe.hpp, with opaque
// handles and status codes. C11. No exception leaves it.
//
//   megamoe_checkpoint* checkpoint;
//   megamoe_group* group; megamoe_layer* layer;
//   megamoe_layer_config config;
//   megamoe_batch batch;
//   if (megamoe_checkpoint_load("model", 0, &checkpoint) != MEGAMOE_OK) puts(megamoe_last_error());
//   megamoe_checkpoint_config(checkpoint, &config);
//   config.max_tokens = 512;
//   megamoe_group_single(MEGAMOE_DEFAULT_DEADLINE, &group);
//   megamoe_layer_create_from_checkpoint(checkpoint, &config, group, NULL, &layer);
//   megamoe_layer_batch(layer, tokens, &batch);                     // pointers into the arena
//   batch.x_bf16 = x, batch.x_bf16_values = tokens * config.hidden; // or fill batch.x and x_scales
//   megamoe_checkpoint_route(checkpoint, x, tokens, batch.experts, batch.weights);
//   megamoe_layer_forward(layer, &batch, y, tokens * config.hidden, MEGAMOE_FUSED);
//   megamoe_layer_destroy(layer), megamoe_group_destroy(group);
//   megamoe_checkpoint_destroy(checkpoint);
//
// Structures are zeroed by their user before use (`= {0}`): zero in an optional field means that
// the library decides. Handles are used by one thread at a time. The destroy functions take NULL.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a function returns; anything but MEGAMOE_OK leaves a sentence in megamoe_last_error(), and
/// NULL where a handle was asked for. The meanings are those of megamoe::ErrorCode.
typedef enum megamoe_status {
  MEGAMOE_OK = 0,
  MEGAMOE_INVALID_ARGUMENT,
  MEGAMOE_UNSUPPORTED,
  MEGAMOE_FORMAT,
  MEGAMOE_IO,
  MEGAMOE_OUT_OF_MEMORY,
  MEGAMOE_MISMATCH,
  MEGAMOE_DEADLINE,
  MEGAMOE_PEER_LOST,
  MEGAMOE_ABORTED,
  MEGAMOE_INTERNAL
} megamoe_status;

/// As megamoe::Recipe.
typedef enum megamoe_recipe {
  MEGAMOE_FP8_FP4,
  MEGAMOE_FP8_FP8,
  MEGAMOE_BF16_BF16,
  MEGAMOE_BF16_FP4,
  MEGAMOE_BF16_FP8
} megamoe_recipe;

/// As megamoe::Activation.
typedef enum megamoe_activation { MEGAMOE_SWIGLU, MEGAMOE_SWIGLU_OAI } megamoe_activation;

/// As megamoe::Execution.
typedef enum megamoe_execution { MEGAMOE_FUSED, MEGAMOE_SPLIT, MEGAMOE_STAGED } megamoe_execution;

/// As megamoe::Backend.
typedef enum megamoe_backend { MEGAMOE_AUTOMATIC, MEGAMOE_CPU, MEGAMOE_CUDA } megamoe_backend;

/// As megamoe::InstructionSet; the first: the best that the machine has.
typedef enum megamoe_instruction_set {
  MEGAMOE_BEST_INSTRUCTION_SET,
  MEGAMOE_SCALAR,
  MEGAMOE_AVX2,
  MEGAMOE_AVX512
} megamoe_instruction_set;

/// As megamoe::WeightFormat.
typedef enum megamoe_weight_format {
  MEGAMOE_WEIGHTS_BF16,
  MEGAMOE_WEIGHTS_FP4,
  MEGAMOE_WEIGHTS_FP8
} megamoe_weight_format;

/// The format of the shared experts' weights; the first: as the recipe's.
typedef enum megamoe_shared_weights {
  MEGAMOE_SHARED_AS_RECIPE,
  MEGAMOE_SHARED_BF16,
  MEGAMOE_SHARED_FP4,
  MEGAMOE_SHARED_FP8
} megamoe_shared_weights;

typedef struct megamoe_group megamoe_group;
typedef struct megamoe_layer megamoe_layer;
typedef struct megamoe_checkpoint megamoe_checkpoint;

/// As megamoe::LayerConfig.
typedef struct megamoe_layer_config {
  int64_t hidden;
  int64_t intermediate;
  int64_t experts;
  int64_t shared_experts;
  int64_t top_k;
  int64_t max_tokens;
  megamoe_recipe recipe;
  megamoe_activation activation;
  float activation_limit;  ///< 0: none is given
  megamoe_shared_weights shared_weights;
} megamoe_layer_config;

/// As megamoe::LayerOptions; 0: the plan decides.
typedef struct megamoe_layer_options {
  int64_t workers;
  int64_t k1_workers;
  int64_t k2_workers;
  int64_t block_rows;
  megamoe_instruction_set instruction_set;
  int bind_threads;  ///< above 0: yes, below: no
} megamoe_layer_options;

/// As megamoe::MatrixView.
typedef struct megamoe_matrix {
  megamoe_weight_format format;
  int64_t rows;
  int64_t columns;
  const void* values;
  int64_t row_stride_bytes;
  const void* scales;
  int64_t scale_row_stride_bytes;
} megamoe_matrix;

/// As megamoe::ExpertWeights. A bias is NULL or has one value per row of its matrix.
typedef struct megamoe_expert {
  megamoe_matrix gate;
  megamoe_matrix up;
  megamoe_matrix down;
  const float* gate_bias;
  const float* up_bias;
  const float* down_bias;
} megamoe_expert;

/// As megamoe::LayerWeights: all routed experts in order of their ids, then the shared ones.
typedef struct megamoe_layer_weights {
  const megamoe_expert* experts;
  size_t expert_count;
  const megamoe_expert* shared;
  size_t shared_count;
} megamoe_layer_weights;

/// As megamoe::Batch. bf16 values are the upper halves of binary32 as uint16_t.
typedef struct megamoe_batch {
  int64_t tokens;
  void* x;
  size_t x_bytes;
  void* x_scales;
  size_t x_scales_bytes;
  int64_t* experts;        ///< [tokens, top_k]
  float* weights;          ///< [tokens, top_k]
  const uint16_t* x_bf16;  ///< NULL, or the caller's x [tokens, hidden] instead of x and x_scales
  size_t x_bf16_values;
} megamoe_batch;

/// As megamoe::CallReport.
typedef struct megamoe_report {
  int64_t tokens;
  int64_t routes;
  const int64_t* rows_per_expert;  ///< valid until the layer's next call or its end
  size_t rows_per_expert_count;
  int64_t dispatch_ns;
  int64_t compute_ns;
  int64_t barrier_b_ns;
  int64_t combine_ns;
  int64_t total_ns;
  int64_t pull_busy_ns;
  int64_t gemm1_busy_ns;
  int64_t gemm2_busy_ns;
  int64_t pulled_bytes;
  int64_t pushed_bytes;
  int64_t weight_bytes;
  int64_t flops;
} megamoe_report;

/// "major.minor.patch".
const char* megamoe_version(void);

/// Of this thread's last call that failed; "" before the first. Valid until the next that fails.
const char* megamoe_last_error(void);

/// For `deadline_ns`: that of megamoe::GroupOptions. 0: waits for ever.
#define MEGAMOE_DEFAULT_DEADLINE ((int64_t)-1)

/// As megamoe::cuda_devices.
int megamoe_cuda_devices(void);

/// As megamoe::choose_backend.
megamoe_status megamoe_choose_backend(const megamoe_layer_config* config, int ranks,
                                      megamoe_backend wanted, megamoe_backend* backend);

/// A group of one rank.
megamoe_status megamoe_group_single(int64_t deadline_ns, megamoe_group** group);

/// Ranks that are threads of this process: fills groups[0] to groups[ranks - 1]; the thread that
/// plays rank r uses and destroys groups[r].
megamoe_status megamoe_group_threads(int ranks, int64_t deadline_ns, megamoe_group** groups);

/// Joins a group of processes of this host that meet at `rendezvous`; returns when all have come.
megamoe_status megamoe_group_processes(int rank, int ranks, const char* rendezvous,
                                       int64_t deadline_ns, megamoe_group** group);

/// Ranks of this process on CUDA devices, rank r on devices[r]: as megamoe_group_threads. Pointers
/// of their batches, y and x_bf16 are device memory.
megamoe_status megamoe_group_devices(const int* devices, int ranks, int64_t deadline_ns,
                                     megamoe_group** groups);

/// As megamoe_group_processes, with this rank on a CUDA device.
megamoe_status megamoe_group_processes_on_device(int rank, int ranks, const char* rendezvous,
                                                 int device, int64_t deadline_ns,
                                                 megamoe_group** group);

/// As megamoe::PeerGroupOptions.
typedef struct megamoe_peers {
  int device;
  int rank;
  int ranks;
  void* const* parts;  ///< [ranks]
  int64_t bytes;       ///< of each part, see megamoe_peer_bytes
} megamoe_peers;

/// A rank that meets the others in the caller's symmetric device memory.
megamoe_status megamoe_group_peers(const megamoe_peers* peers, int64_t deadline_ns,
                                   megamoe_group** group);
megamoe_status megamoe_peer_bytes(const megamoe_layer_config* config, int ranks, int64_t* bytes);

megamoe_status megamoe_group_rank(const megamoe_group* group, int* rank, int* ranks);

/// MEGAMOE_CPU or MEGAMOE_CUDA.
megamoe_status megamoe_group_backend(const megamoe_group* group, megamoe_backend* backend);

/// Layers that were made with it stay usable.
void megamoe_group_destroy(megamoe_group* group);

/// Layer `layer` of a checkpoint folder as Hugging Face publishes it.
megamoe_status megamoe_checkpoint_load(const char* directory, int64_t layer,
                                       megamoe_checkpoint** checkpoint);

/// max_tokens is 0: the caller sets it.
megamoe_status megamoe_checkpoint_config(const megamoe_checkpoint* checkpoint,
                                         megamoe_layer_config* config);

/// "mixtral", "qwen3_moe", ...; valid as long as the checkpoint.
megamoe_status megamoe_checkpoint_family(const megamoe_checkpoint* checkpoint, const char** family);

/// The checkpoint's router: x bf16 [tokens, hidden] to experts and weights [tokens, top_k].
megamoe_status megamoe_checkpoint_route(const megamoe_checkpoint* checkpoint, const uint16_t* x,
                                        int64_t tokens, int64_t* experts, float* weights);

/// Layers that were made from it stay usable.
void megamoe_checkpoint_destroy(megamoe_checkpoint* checkpoint);

/// Collective over the group. `config` is the checkpoint's with max_tokens set, and perhaps another
/// recipe. `options` may be NULL.
megamoe_status megamoe_layer_create_from_checkpoint(const megamoe_checkpoint* checkpoint,
                                                    const megamoe_layer_config* config,
                                                    const megamoe_group* group,
                                                    const megamoe_layer_options* options,
                                                    megamoe_layer** layer);

/// The same from the caller's matrices, which may go afterwards.
megamoe_status megamoe_layer_create(const megamoe_layer_config* config,
                                    const megamoe_layer_weights* weights,
                                    const megamoe_group* group,
                                    const megamoe_layer_options* options, megamoe_layer** layer);

megamoe_status megamoe_layer_config_of(const megamoe_layer* layer, megamoe_layer_config* config);

/// Pointers into the layer's arena for `tokens` tokens, x_bf16 NULL.
megamoe_status megamoe_layer_batch(const megamoe_layer* layer, int64_t tokens,
                                   megamoe_batch* batch);

/// Collective over the group. y: bf16 [tokens, hidden], `y_values` = tokens * hidden of them.
/// Returns when y is complete; errors as in megamoe::Layer::forward.
megamoe_status megamoe_layer_forward(megamoe_layer* layer, const megamoe_batch* batch, uint16_t* y,
                                     size_t y_values, megamoe_execution execution);

/// Groups of CUDA devices: enqueue the call on a cudaStream_t (NULL: the default stream) and
/// return, see megamoe::Layer. With `tokens`, a word of device memory, the number of tokens is read
/// when the call begins; y, and x_bf16 if it is set, then have max_tokens rows.
megamoe_status megamoe_layer_enqueue(megamoe_layer* layer, const megamoe_batch* batch, uint16_t* y,
                                     size_t y_values, void* stream);
megamoe_status megamoe_layer_enqueue_counted(megamoe_layer* layer, const int32_t* tokens,
                                             const megamoe_batch* batch, uint16_t* y,
                                             size_t y_values, void* stream);

/// Waits for this rank's calls and returns what they ran into.
megamoe_status megamoe_layer_wait(megamoe_layer* layer);
/// *over: 1 if they are over, and then returns what they ran into; else 0.
megamoe_status megamoe_layer_poll(megamoe_layer* layer, int* over);

/// What was planned and why; valid as long as the layer.
megamoe_status megamoe_layer_explain(const megamoe_layer* layer, const char** text);

/// What the layer's last call did at this rank.
megamoe_status megamoe_layer_report(const megamoe_layer* layer, megamoe_report* report);

void megamoe_layer_destroy(megamoe_layer* layer);

// FP8 MQA logits, the kernel beside the layer: megamoe/mqa_logits.hpp has the contract.

typedef struct megamoe_mqa megamoe_mqa;

/// As megamoe::MqaFormat, MqaWeightFormat, MqaLogitFormat, MqaOutside and MqaContextLengths.
typedef enum megamoe_mqa_format { MEGAMOE_MQA_E4M3, MEGAMOE_MQA_E2M1 } megamoe_mqa_format;
typedef enum megamoe_mqa_weights {
  MEGAMOE_MQA_WEIGHTS_F32,
  MEGAMOE_MQA_WEIGHTS_F16
} megamoe_mqa_weights;
typedef enum megamoe_mqa_logits {
  MEGAMOE_MQA_LOGITS_F32,
  MEGAMOE_MQA_LOGITS_BF16
} megamoe_mqa_logits;
typedef enum megamoe_mqa_outside {
  MEGAMOE_MQA_UNSPECIFIED,
  MEGAMOE_MQA_MINUS_INFINITY
} megamoe_mqa_outside;
typedef enum megamoe_mqa_lengths {
  MEGAMOE_MQA_PER_SEQUENCE,
  MEGAMOE_MQA_PER_ROW
} megamoe_mqa_lengths;

/// As megamoe::MqaQueries.
typedef struct megamoe_mqa_queries {
  int64_t rows;
  int64_t heads;
  int64_t head_dim;
  const void* q;
  megamoe_mqa_format format;
  const void* weights;
  megamoe_mqa_weights weight_format;
} megamoe_mqa_queries;

/// As megamoe::MqaLogitsInput.
typedef struct megamoe_mqa_input {
  megamoe_mqa_queries queries;
  int64_t keys;
  const void* kv;
  megamoe_mqa_format kv_format;
  const float* kv_scales;
  const int32_t* begins;
  const int32_t* ends;
} megamoe_mqa_input;

/// As megamoe::PagedMqaLogitsInput.
typedef struct megamoe_mqa_paged_input {
  megamoe_mqa_queries queries;
  int64_t sequences;
  int64_t next_n;
  const void* cache;
  megamoe_mqa_format cache_format;
  int64_t blocks;
  const int32_t* context_lengths;
  megamoe_mqa_lengths lengths;
  const int32_t* block_table;
  int64_t max_blocks;
  int64_t max_context;
} megamoe_mqa_paged_input;

/// As megamoe::MqaLogitsOutput.
typedef struct megamoe_mqa_output {
  void* logits;
  megamoe_mqa_logits format;
  int64_t row_stride;
  megamoe_mqa_outside outside;
} megamoe_mqa_output;

/// Threads for calls on the CPU. 0 workers: as many as there are usable processors.
megamoe_status megamoe_mqa_create(int64_t workers, megamoe_instruction_set instruction_set,
                                  megamoe_mqa** mqa);
void megamoe_mqa_destroy(megamoe_mqa* mqa);

megamoe_status megamoe_mqa_run(megamoe_mqa* mqa, const megamoe_mqa_input* input,
                               const megamoe_mqa_output* output);
megamoe_status megamoe_mqa_run_paged(megamoe_mqa* mqa, const megamoe_mqa_paged_input* input,
                                     const megamoe_mqa_output* output);

/// Called for each chunk of rows, in order, with the `user` of the call.
typedef void (*megamoe_mqa_consumer)(void* user, int64_t first_row, int64_t rows);

/// All rows through the buffer of `buffer_bytes` at output->logits.
megamoe_status megamoe_mqa_run_in_chunks(megamoe_mqa* mqa, const megamoe_mqa_input* input,
                                         const megamoe_mqa_output* output, int64_t buffer_bytes,
                                         megamoe_mqa_consumer consumer, void* user);

/// The same enqueued on a cudaStream_t of the current device (NULL: the default stream), with GPU
/// pointers, as megamoe::mqa_logits_on_gpu. `consumer` enqueues what reads its chunk.
megamoe_status megamoe_mqa_enqueue(const megamoe_mqa_input* input, const megamoe_mqa_output* output,
                                   void* stream);
megamoe_status megamoe_mqa_enqueue_paged(const megamoe_mqa_paged_input* input,
                                         const megamoe_mqa_output* output, void* stream);
megamoe_status megamoe_mqa_enqueue_in_chunks(const megamoe_mqa_input* input,
                                             const megamoe_mqa_output* output, int64_t buffer_bytes,
                                             megamoe_mqa_consumer consumer, void* user,
                                             void* stream);
#ifdef __cplusplus
}  // extern "C"
#endif
