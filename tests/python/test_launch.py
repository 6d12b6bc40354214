"""Ranks that a launcher started: processes with RANK and WORLD_SIZE in their environment."""
import os
import subprocess
import sys

import fixtures
import numpy
import pytest

import megamoe
from megamoe import _launch

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "a/b"}


@pytest.mark.parametrize("environment, launcher, rank, ranks", [
    (TORCHRUN, "torchrun", 1, 4),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "mpirun", 2, 3),
    ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "mpiexec", 0, 2),
    ({"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "1"}, "srun", 1, 2),
    (TORCHRUN | {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1"}, "torchrun", 1, 4),
])
def test_launchers_are_recognised(environment, launcher, rank, ranks):
    launched = _launch.launched_rank(environment)
    assert (launched.launcher, launched.rank, launched.ranks) == (launcher, rank, ranks)
    assert "/" not in launched.rendezvous and launcher in launched.rendezvous


def test_without_a_launcher_there_is_no_rank():
    assert _launch.launched_rank({}) is None
    assert _launch.launched_rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None, "a batch script is no step"


@pytest.mark.parametrize("change, error, message", [
    ({"RANK": "first"}, megamoe.InvalidArgumentError, "RANK is 'first'"),
    ({"RANK": "4"}, megamoe.InvalidArgumentError, "RANK is 4 and WORLD_SIZE is 4"),
    ({"RANK": ""}, megamoe.InvalidArgumentError, "RANK is not set"),
    ({"WORLD_SIZE": ""}, megamoe.InvalidArgumentError, "WORLD_SIZE is not set"),
    ({"LOCAL_WORLD_SIZE": "2"}, megamoe.UnsupportedError, "all ranks on one host"),
])
def test_environments_that_cannot_be_are_named(change, error, message):
    with pytest.raises(error, match=message):
        _launch.launched_rank(TORCHRUN | change)


RANK_PROGRAM = """
import sys, numpy, megamoe
sys.path.insert(0, sys.argv[1])
import fixtures
group = megamoe.Group.from_environment(deadline=60)
x, _ = fixtures.expected("deepseek_v3")
checkpoint = megamoe.load_layer(fixtures.FOLDER / "deepseek_v3", 0, max_tokens=16)
mine = numpy.array_split(x, group.ranks)[group.rank].copy()
experts, weights = megamoe.route(checkpoint.router, mine)
results = []
for _ in range(2):  # a second group of the same processes
    layer = megamoe.Layer(checkpoint.config, checkpoint, group)
    results.append(numpy.asarray(layer(mine, experts, weights)).view(numpy.uint16))
    group = group.duplicate()
assert (results[0] == results[1]).all()
results[0].tofile(f"{sys.argv[2]}/{group.rank}.bin")
"""


def test_two_rank_processes_give_the_bits_of_one(tmp_path):
    here = os.path.dirname(__file__)
    environment = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(os.getpid())}
    ranks = [subprocess.Popen([sys.executable, "-c", RANK_PROGRAM, here, str(tmp_path)],
                              env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)}, stderr=subprocess.PIPE)
             for r in range(2)]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors.decode()
    x, _ = fixtures.expected("deepseek_v3")
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "deepseek_v3", 0, max_tokens=32)
    alone = megamoe.Layer(checkpoint.config, checkpoint)(x, *megamoe.route(checkpoint.router, x))
    parts = [numpy.fromfile(tmp_path / f"{r}.bin", dtype=numpy.uint16) for r in range(2)]
    assert (numpy.concatenate(parts) == alone.view(numpy.uint16).reshape(-1)).all()
