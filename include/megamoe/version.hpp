// The version of the library; ranks of a group must agree on it.
#pragma once

namespace megamoe {

/// "major.minor.patch".
const char* version();

}  // namespace megamoe
