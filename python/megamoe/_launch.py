"""What the environment of a launcher (torchrun, mpirun, srun) says of this process."""
import itertools
import os
from dataclasses import dataclass

from ._errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True)
class LaunchedRank:
    """The rank that a launcher made of this process."""

    launcher: str
    rank: int
    ranks: int
    local_rank: int
    rendezvous: str  # the same at all ranks of the launcher, and theirs alone


@dataclass(frozen=True)
class _Dialect:
    launcher: str
    rank: tuple
    ranks: tuple
    local_rank: tuple
    ranks_of_host: tuple
    ids: tuple
    required: tuple = ()


# Innermost first: torchrun and mpirun are often started by srun, never the other way round.
_DIALECTS = (
    _Dialect("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",),
             ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")),
    _Dialect("mpirun", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",),
             ("OMPI_COMM_WORLD_LOCAL_SIZE",), ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_JOB_ID")),
    _Dialect("mpiexec", ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",),
             ("PMI_JOBID", "PMI_KVSNAME", "SLURM_JOB_ID", "SLURM_STEP_ID")),
    # A batch script of Slurm is no rank: only a step (srun) is.
    _Dialect("srun", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), (),
             ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID"), ("SLURM_STEP_ID", "SLURM_STEPID")),
)


def _first(environment, names):
    for name in names:
        if environment.get(name):
            return environment[name]
    return None


def _number(environment, names, launcher):
    text = _first(environment, names)
    if text is None:
        raise InvalidArgumentError(
            f"the environment looks like {launcher}, but {names[0]} is not set: start the program with {launcher}, or "
            f"unset its variables")
    if not text.isdigit():
        raise InvalidArgumentError(f"{names[0]} is '{text}': {launcher} sets it to a number from 0 on")
    return int(text)


def _read(environment, dialect):
    rank = _number(environment, dialect.rank, dialect.launcher)
    ranks = _number(environment, dialect.ranks, dialect.launcher)
    if rank >= ranks:
        raise InvalidArgumentError(f"{dialect.rank[0]} is {rank} and {dialect.ranks[0]} is {ranks}: ranks go from 0 to {ranks - 1}")
    here = _first(environment, dialect.ranks_of_host)
    hosts = _first(environment, ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")) if dialect.launcher == "srun" else None
    if (here is not None and here != str(ranks)) or hosts not in (None, "1"):
        raise UnsupportedError(
            f"{dialect.launcher} has {ranks} ranks, not all of them on this host, and a group reaches as far as one "
            f"load/store domain: start all ranks on one host")
    ids = [environment[name].replace("/", "_") for name in dialect.ids if environment.get(name)]
    # Without any id: the process that starts the ranks of a host is the parent of them all.
    rendezvous = "-".join([dialect.launcher, *(ids or [f"parent-{os.getppid()}"])])
    local = _first(environment, dialect.local_rank)
    return LaunchedRank(dialect.launcher, rank, ranks, rank if local is None else int(local), rendezvous)


def launched_rank(environment=None):
    """The rank of this process, or None where no launcher speaks.

    Args:
        environment: a mapping; os.environ if None.
    Raises:
        InvalidArgumentError that names the variable that is missing or no number; UnsupportedError for ranks on several
        hosts.
    """
    environment = os.environ if environment is None else environment
    for dialect in _DIALECTS:
        speaks = _first(environment, dialect.rank) is not None or (
            dialect.launcher != "srun" and _first(environment, dialect.ranks) is not None)
        if speaks and (not dialect.required or _first(environment, dialect.required)):
            return _read(environment, dialect)
    return None


_groups_of_process = itertools.count()


def fresh_rendezvous(launched):
    """A name for this process's next group; ranks make their groups in the same order."""
    return f"python-{launched.rendezvous}-{next(_groups_of_process)}"
