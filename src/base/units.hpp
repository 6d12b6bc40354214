// Quantities as messages say them.
#pragma once

#include <chrono>
#include <string>

namespace megamoe {

/// "30.0 s", "0.4 s"; below a tenth of a second "25 ms", "1.5 us" or "1 ns": a time that is not
/// zero never reads as zero.
std::string as_text(std::chrono::nanoseconds time);

}  // namespace megamoe
