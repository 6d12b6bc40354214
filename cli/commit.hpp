// Which commit this command was built from.
#pragma once

namespace megamoe::cli {

/// Twelve digits, "-dirty" behind them for a changed tree; "unknown" outside a checkout.
const char* commit();

}  // namespace megamoe::cli
