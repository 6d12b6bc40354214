"""Groups of ranks."""
from . import _core, _launch


class Group:
    """One rank's handle on its group: the ranks that run layers together.

    Made by `single`, `threads`, `devices`, `processes` or `from_environment`. Layers are made and called in the same order on every
    rank, each rank from one thread at a time. The rank leaves when the last Group and Layer that hold it are gone; leaving
    waits for nobody.

    Every wait for another rank has a deadline, in seconds (0: for ever); after it DeadlineError says which rank and
    signal were waited for.
    """

    __slots__ = ("_core", "_shares_device", "device")

    def __init__(self, core, shares_device=False):
        self._core = core
        self._shares_device = shares_device  # with other ranks of this process
        self.device = core.device  # number of the rank's CUDA device, or None for the CPU

    @classmethod
    def single(cls, *, deadline=30.0):
        """A group of one rank."""
        return cls(_core.Group.single(deadline))

    @classmethod
    def threads(cls, ranks, *, deadline=30.0):
        """Ranks that are threads of this process.

        Args:
            ranks: 1 to 1024.
        Returns:
            a list of groups: use entry r from the thread that plays rank r. megamoe releases the GIL while it computes or
            waits, so ordinary Python threads will do.
        """
        return [cls(core) for core in _core.Group.threads(ranks, deadline)]

    @classmethod
    def devices(cls, devices, *, deadline=30.0):
        """Ranks of this process on CUDA devices (compute capability 9.0).

        Args:
            devices: rank r runs on devices[r]. A device that is named several times is shared in equal parts; its ranks
                call on streams of their own (torch.cuda.Stream), since calls on one stream would wait for each other.
        Returns:
            a list of groups, as threads does.
        Raises:
            UnsupportedError for a device that the kernels do not run on, or a build without CUDA.
        """
        devices = list(devices)
        return [cls(core, devices.count(device) > 1) for core, device in zip(_core.Group.devices(devices, deadline), devices)]

    @classmethod
    def processes(cls, rank, ranks, rendezvous, *, device=None, deadline=30.0):
        """Joins a group of processes of this host; returns when all ranks have come.

        Args:
            rank: of this process, 0 to ranks - 1.
            ranks: 1 to 1024.
            rendezvous: any text without '/', the same on all ranks and used by no other group at the same time.
            device: number of this rank's CUDA device, or None for the CPU; all ranks have one, or none.
        Raises:
            DeadlineError that names the ranks that did not come; UnsupportedError for a device as devices does.
        """
        return cls(_core.Group.processes(rank, ranks, rendezvous, deadline, device))

    @classmethod
    def from_environment(cls, *, device=None, deadline=30.0):
        """The group of the launcher that started this process: torchrun, mpirun, mpiexec or srun, all ranks on one host.

        Reads RANK and WORLD_SIZE (with MASTER_ADDR, MASTER_PORT, TORCHELASTIC_* where they are set), or the variables of
        the other launchers. Without a launcher: a group of one rank. Call it equally often on every rank: each call makes
        another group.

        Args:
            device: number of this rank's CUDA device (often LOCAL_RANK), or None for the CPU.
        Raises:
            InvalidArgumentError that names a variable that is missing or no number; UnsupportedError for several hosts;
            DeadlineError that names the ranks that did not come.
        """
        launched = _launch.launched_rank()
        if launched is None:
            return cls.single(deadline=deadline) if device is None else cls.devices([device], deadline=deadline)[0]
        return cls.processes(launched.rank, launched.ranks, _launch.fresh_rendezvous(launched), device=device,
                             deadline=deadline)

    def duplicate(self):
        """The same ranks as another group, with memory and calls of its own. Collective."""
        return Group(self._core.duplicate(), self._shares_device)

    def meet(self, what="a meeting of the program"):
        """Returns when every rank has called it. Collective. what: named in the error of a rank that does not come."""
        self._core.meet(what)

    @property
    def rank(self):
        """Of this handle, from 0."""
        return self._core.rank

    @property
    def ranks(self):
        """How many there are."""
        return self._core.ranks

    def __repr__(self):
        return f"Group(rank={self.rank}, ranks={self.ranks})"
