// The C structures as the C++ ones and back. A number that names no value of its enumeration, or a
// pointer that is missing, is Error{invalid_argument}.
#pragma once

#include "megamoe/layer.hpp"
#include "megamoe/megamoe.h"
#include "megamoe/weights.hpp"

#include "base/check.hpp"

namespace megamoe::c {

/// The object behind a pointer of the caller; `name` as the header spells it.
template <class T>
T& required(T* pointer, const char* name) {
  check_argument(pointer != nullptr, "{} is NULL: pass a valid one", name);
  return *pointer;
}

LayerConfig to_config(const megamoe_layer_config& config);
megamoe_layer_config from_config(const LayerConfig& config);

/// `options` may be null.
LayerOptions to_options(const megamoe_layer_options* options);

LayerWeights to_weights(const megamoe_layer_weights& weights);

Execution to_execution(megamoe_execution execution);
Backend to_backend(megamoe_backend backend);
megamoe_backend from_backend(Backend backend);

/// rows_per_expert points into `report`.
megamoe_report from_report(const CallReport& report);

inline const BFloat16* to_bf16(const std::uint16_t* values) {
  static_assert(sizeof(BFloat16) == sizeof(std::uint16_t));
  return reinterpret_cast<const BFloat16*>(values);
}
inline BFloat16* to_bf16(std::uint16_t* values) {
  return reinterpret_cast<BFloat16*>(values);
}

}  // namespace megamoe::c
