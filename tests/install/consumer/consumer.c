/* The layer of the checkpoint in argv[1], planned from C. */
#include <stdio.h>

#include "megamoe/megamoe.h"

int main(int argc, char** argv) {
  megamoe_checkpoint* checkpoint = NULL;
  megamoe_group* group = NULL;
  megamoe_layer* layer = NULL;
  megamoe_layer_config config;
  const char* plan = NULL;
  int failed;
  if (argc != 2) return 2;
  failed = megamoe_checkpoint_load(argv[1], 0, &checkpoint) != MEGAMOE_OK ||
           megamoe_checkpoint_config(checkpoint, &config) != MEGAMOE_OK ||
           megamoe_group_single(MEGAMOE_DEFAULT_DEADLINE, &group) != MEGAMOE_OK;
  if (!failed) {
    config.max_tokens = 4;
    failed = megamoe_layer_create_from_checkpoint(checkpoint, &config, group, NULL, &layer) !=
                 MEGAMOE_OK ||
             megamoe_layer_explain(layer, &plan) != MEGAMOE_OK || plan[0] == '\0';
  }
  if (failed) fprintf(stderr, "%s\n", megamoe_last_error());
  megamoe_layer_destroy(layer);
  megamoe_group_destroy(group);
  megamoe_checkpoint_destroy(checkpoint);
  return failed;
}
