#include "cli/launcher.hpp"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include <unistd.h>

#include "base/check.hpp"

namespace megamoe::cli {
namespace {

using Names = std::vector<const char*>;

/// The variables of one launcher. Of a list of names, the first that is set counts.
struct Dialect {
  Launcher launcher;
  Names recognised_by;
  Names rank;
  Names ranks;
  Names ranks_of_host;  ///< absent: not told
  Names hosts;          ///< absent: not told
  Names required_ids;   ///< their values make the rendezvous
  Names optional_ids;   ///< likewise, where they are set
  const char* also;     ///< must be set too; null: nothing else
};

// Innermost first: torchrun and mpirun are often started by srun, never the other way round.
const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> all{
      {Launcher::torchrun,
       {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
       {"RANK"},
       {"WORLD_SIZE"},
       {"LOCAL_WORLD_SIZE"},
       {},
       {"MASTER_ADDR", "MASTER_PORT"},
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
       "LOCAL_RANK"},
      {Launcher::open_mpi,
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_RANK"},
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       {},
       {},
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "OMPI_JOB_ID"},
       nullptr},
      {Launcher::pmi,
       {"PMI_RANK", "PMI_SIZE"},
       {"PMI_RANK"},
       {"PMI_SIZE"},
       {"MPI_LOCALNRANKS"},
       {},
       {},
       {"PMI_JOBID", "PMI_KVSNAME", "SLURM_JOB_ID", "SLURM_STEP_ID"},
       nullptr},
      {Launcher::slurm,
       {"SLURM_STEP_ID", "SLURM_STEPID"},
       {"SLURM_PROCID"},
       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
       {},
       {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
       {"SLURM_JOB_ID"},
       {"SLURM_STEP_ID", "SLURM_STEPID"},
       nullptr}};
  return all;
}

class Reader {
 public:
  Reader(const Environment& environment, const Dialect& dialect)
      : environment_(environment), dialect_(dialect) {}

  std::optional<std::string> text(const Names& names) const {
    for (const char* name : names) {
      if (auto value = environment_(name)) return value;
    }
    return std::nullopt;
  }

  std::string required(const Names& names) const {
    if (auto value = text(names)) return *value;
    fail(ErrorCode::invalid_argument,
         "the environment looks like {}, but {} is not set: start the command with {}, or unset "
         "{} to let the command start its ranks by itself",
         name_of(dialect_.launcher), names.front(), name_of(dialect_.launcher), set_names());
  }

  std::int64_t number(const Names& names) const {
    const std::string value = required(names);
    std::int64_t number = 0;
    const auto end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, number);
    check_argument(parsed.ec == std::errc() && parsed.ptr == end && number >= 0,
                   "{} is '{}': {} sets it to a number from 0 on", names.front(), value,
                   name_of(dialect_.launcher));
    return number;
  }

  /// A host's number of ranks, where it is told.
  std::optional<std::int64_t> optional_number(const Names& names) const {
    return text(names) ? std::optional(number(names)) : std::nullopt;
  }

 private:
  std::string set_names() const {
    std::string names;
    for (const char* name : dialect_.recognised_by) {
      if (!environment_(name)) continue;
      names += names.empty() ? name : std::string(" and ") + name;
    }
    return names;
  }

  const Environment& environment_;
  const Dialect& dialect_;
};

void refuse_several_hosts(const Reader& reader, const Dialect& dialect, std::int64_t ranks) {
  const auto here = reader.optional_number(dialect.ranks_of_host);
  const auto hosts = reader.optional_number(dialect.hosts);
  check_argument(!here || *here <= ranks, "{} is {}, more than {}, which is {}",
                 dialect.ranks_of_host.empty() ? "" : dialect.ranks_of_host.front(),
                 here.value_or(0), dialect.ranks.front(), ranks);
  const bool several = (here && *here < ranks) || (hosts && *hosts > 1);
  if (!several) return;
  const std::string seen = here ? fmt::format("{} is {} of {} {}", dialect.ranks_of_host.front(),
                                              *here, dialect.ranks.front(), ranks)
                                : fmt::format("{} is {}", dialect.hosts.back(), *hosts);
  fail(ErrorCode::unsupported,
       "{}: the ranks are on several hosts, and a group reaches as far as one load/store domain: "
       "start all ranks on one host",
       seen);
}

std::string rendezvous_of(const Reader& reader, const Dialect& dialect) {
  std::string text(name_of(dialect.launcher));
  const auto add = [&text](const std::string& part) {
    text += '-';
    // A rendezvous has no '/', which addresses and run ids may have.
    for (char c : part) text += c == '/' ? '_' : c;
  };
  for (const char* name : dialect.required_ids) add(reader.required({name}));
  bool told = !dialect.required_ids.empty();
  for (const char* name : dialect.optional_ids) {
    if (const auto value = reader.text({name})) {
      add(*value);
      told = true;
    }
  }
  // Without any id: the daemon that starts the ranks of a host is the parent of them all.
  if (!told) add("parent-" + std::to_string(getppid()));
  return text;
}

LaunchedRank read(const Environment& environment, const Dialect& dialect) {
  const Reader reader(environment, dialect);
  LaunchedRank launched{.launcher = dialect.launcher};
  launched.rank = reader.number(dialect.rank);
  launched.ranks = reader.number(dialect.ranks);
  check_argument(launched.rank < launched.ranks, "{} is {} and {} is {}: ranks go from 0 to {}",
                 dialect.rank.front(), launched.rank, dialect.ranks.front(), launched.ranks,
                 launched.ranks - 1);
  refuse_several_hosts(reader, dialect, launched.ranks);
  if (dialect.also != nullptr) {
    const std::int64_t local = reader.number({dialect.also});
    check_argument(local == launched.rank,
                   "{} is {} and {} is {}: on the one host that a group may have they are equal",
                   dialect.also, local, dialect.rank.front(), launched.rank);
  }
  launched.rendezvous = rendezvous_of(reader, dialect);
  return launched;
}

/// Tasks of a step know their step: a later one without it has lost part of its environment, while
/// task 0 without it is what a batch script looks like.
void refuse_lost_step(const Environment& environment) {
  const auto task = environment("SLURM_PROCID");
  if (!task || *task == "0" || environment("SLURM_STEP_ID") || environment("SLURM_STEPID")) return;
  fail(ErrorCode::invalid_argument,
       "SLURM_PROCID is {}, but SLURM_STEP_ID is not set: start the command with srun, or unset "
       "SLURM_PROCID to let the command start its ranks by itself",
       *task);
}

}  // namespace

std::string_view name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "mpirun";
    case Launcher::pmi:
      return "mpiexec";
    case Launcher::slurm:
      return "srun";
  }
  return "";
}

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

std::optional<LaunchedRank> launched_rank(const Environment& environment) {
  refuse_lost_step(environment);
  std::optional<LaunchedRank> inner;
  for (const Dialect& dialect : dialects()) {
    if (!Reader(environment, dialect).text(dialect.recognised_by)) continue;
    const LaunchedRank found = read(environment, dialect);
    if (!inner) {
      inner = found;
      continue;
    }
    // One rank of another launcher may start a whole launcher.
    check_argument(found.ranks == 1 || (found.rank == inner->rank && found.ranks == inner->ranks),
                   "{} says rank {} of {}, and {} says rank {} of {}: unset the variables of the "
                   "one that did not start the command",
                   name_of(inner->launcher), inner->rank, inner->ranks, name_of(found.launcher),
                   found.rank, found.ranks);
  }
  return inner;
}

}  // namespace megamoe::cli
