// The commands of `megamoe`. Each adds itself to the parser; what it returns when chosen is the
// exit code.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace megamoe::cli {

using Command = std::function<int()>;

/// The sub-command's options are bound to the returned command, which runs it: 0 for success, 1 for
/// a failed check; errors are thrown.
Command add_run(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_doctor(CLI::App& app);

}  // namespace megamoe::cli
