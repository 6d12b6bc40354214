// Launchers that start one process per rank (torchrun, mpirun, srun): what their environment says
// of this process. The library reads no environment; the command does, here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace megamoe::cli {

enum class Launcher { torchrun, open_mpi, pmi, slurm };
std::string_view name_of(Launcher launcher);

/// The rank that a launcher made of this process.
struct LaunchedRank {
  Launcher launcher = Launcher::torchrun;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::string rendezvous;  ///< from the launcher's ids: the same at all its ranks, and theirs alone
};

/// The value of a variable, or nothing where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

/// Nothing where no launcher speaks. A batch script of Slurm is no rank: only a step (srun) is.
///
/// Throws Error{invalid_argument} that names the variables: one that is missing beside others of
/// its launcher, one that is no number or out of range, launchers of more than one rank that
/// disagree. Throws Error{unsupported} for ranks on several hosts.
std::optional<LaunchedRank> launched_rank(const Environment& environment);

}  // namespace megamoe::cli
