#include "api/c_client.h"

#include "megamoe/megamoe.h"

/// Frees what there is; keeps the last error.
static const char* finish(megamoe_checkpoint* checkpoint, megamoe_group* group,
                          megamoe_layer* layer, megamoe_status status) {
  megamoe_layer_destroy(layer);
  megamoe_group_destroy(group);
  megamoe_checkpoint_destroy(checkpoint);
  return status == MEGAMOE_OK ? NULL : megamoe_last_error();
}

static megamoe_status run(const megamoe_checkpoint* checkpoint, megamoe_layer* layer,
                          const uint16_t* x, int64_t tokens, megamoe_execution execution,
                          uint16_t* y) {
  megamoe_layer_config config;
  megamoe_batch batch;
  megamoe_status status = megamoe_layer_config_of(layer, &config);
  if (status != MEGAMOE_OK) return status;
  status = megamoe_layer_batch(layer, tokens, &batch);
  if (status != MEGAMOE_OK) return status;
  batch.x_bf16 = x;
  batch.x_bf16_values = (size_t)(tokens * config.hidden);
  status = megamoe_checkpoint_route(checkpoint, x, tokens, batch.experts, batch.weights);
  if (status != MEGAMOE_OK) return status;
  return megamoe_layer_forward(layer, &batch, y, batch.x_bf16_values, execution);
}

const char* c_client_run(const char* directory, const uint16_t* x, int64_t tokens, int execution,
                         uint16_t* y) {
  megamoe_checkpoint* checkpoint = NULL;
  megamoe_group* group = NULL;
  megamoe_layer* layer = NULL;
  megamoe_layer_config config = {0};
  const megamoe_layer_options options = {.workers = 2};
  megamoe_status status = megamoe_checkpoint_load(directory, 0, &checkpoint);
  if (status != MEGAMOE_OK) return finish(checkpoint, group, layer, status);
  status = megamoe_checkpoint_config(checkpoint, &config);
  if (status != MEGAMOE_OK) return finish(checkpoint, group, layer, status);
  config.max_tokens = tokens;
  status = megamoe_group_single(MEGAMOE_DEFAULT_DEADLINE, &group);
  if (status != MEGAMOE_OK) return finish(checkpoint, group, layer, status);
  status = megamoe_layer_create_from_checkpoint(checkpoint, &config, group, &options, &layer);
  if (status == MEGAMOE_OK) {
    status = run(checkpoint, layer, x, tokens, (megamoe_execution)execution, y);
  }
  return finish(checkpoint, group, layer, status);
}
