import pathlib
import sys

import pytest

# Helpers of this folder, wherever pytest is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import fixtures  # noqa: E402


@pytest.fixture(params=fixtures.FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def in_threads():
    """Runs function(rank) for some ranks at once, each in a thread; returns their results in order."""
    from concurrent.futures import ThreadPoolExecutor

    def run(ranks, function):
        with ThreadPoolExecutor(ranks) as pool:
            return [future.result(timeout=60) for future in [pool.submit(function, rank) for rank in range(ranks)]]

    return run
