// What the C part of the test does for the C++ part.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Runs `tokens` tokens through layer 0 of the checkpoint in `directory` with nothing but
/// megamoe.h: x and y are bf16 [tokens, hidden]. Returns NULL, or the sentence of what failed.
const char* c_client_run(const char* directory, const uint16_t* x, int64_t tokens, int execution,
                         uint16_t* y);

#ifdef __cplusplus
}  // extern "C"
#endif
