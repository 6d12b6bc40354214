// The MQA logits as plain loops in f64: the specification of every other backend.
#pragma once

#include <vector>

#include "megamoe/mqa_logits.hpp"

namespace megamoe::mqa {

/// [rows][keys]; -infinity outside the ranges. The weights are taken as their format has them.
std::vector<double> reference(const MqaLogitsInput& input);
/// [sequences * next_n][max_context].
std::vector<double> reference(const PagedMqaLogitsInput& input);

/// What the format of the weights stands for.
float weight_at(const MqaQueries& queries, std::int64_t row, std::int64_t head);

}  // namespace megamoe::mqa
