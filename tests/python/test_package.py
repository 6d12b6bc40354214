"""What importing the package and packing weights take."""
import subprocess
import sys

import pytest

MIB = 2**20


def output_of(program):
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_it_imports_no_other_framework():
    program = "import sys, megamoe, megamoe.deep_gemm; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    modules = output_of(program).split()
    for name in ("torch", "jax", "cupy", "ml_dtypes"):
        assert name not in modules
    assert "numpy" in modules


def test_importing_it_takes_little_beside_numpy():
    program = "import time, numpy; t = time.process_time(); import megamoe, megamoe.deep_gemm; print(time.process_time() - t)"
    assert min(float(output_of(program)) for _ in range(3)) < 0.15


def test_it_works_without_ml_dtypes():
    program = """
import sys
sys.modules["ml_dtypes"] = None  # as if it were not installed
import numpy, megamoe
config = megamoe.LayerConfig(hidden=64, intermediate=64, experts=2, top_k=1, max_tokens=4, recipe="bf16_bf16")
w = megamoe.to_bfloat16(numpy.full((2, 128, 64), 0.125)), megamoe.to_bfloat16(numpy.full((2, 64, 64), 0.125))
y = megamoe.Layer(config, megamoe.Weights(*w))(megamoe.to_bfloat16(numpy.ones((1, 64))), numpy.array([[1]]),
                                                numpy.ones((1, 1), dtype=numpy.float32))
print(y.dtype, megamoe.to_float32(y)[0, 0])
"""
    dtype, value = output_of(program).split()
    # gate = up = 8; silu(8) * 8 = 63.98, to bf16 64, times 64 * 0.125
    assert dtype == "uint16" and float(value) == 512


def test_the_version_is_that_of_the_library():
    import re

    import megamoe

    assert re.fullmatch(r"\d+\.\d+\.\d+", megamoe.__version__)


PACKING = """
import os, sys, numpy, megamoe
from megamoe import deep_gemm
def memory(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key + ":"))
E, H, I = 16, 1024, 1024
w1 = numpy.full((E, 2 * I, H // 2), 0x12, dtype=numpy.int8)
w2 = numpy.full((E, H, I // 2), 0x12, dtype=numpy.int8)
s1 = numpy.full((E, 2 * I, H // 128), 0x78787878, dtype=numpy.int32)
s2 = numpy.full((E, H, I // 128), 0x78787878, dtype=numpy.int32)
values = w1.nbytes + w2.nbytes + s1.nbytes + s2.nbytes
before = memory("VmRSS")
buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 8, 2, H, I)
halves = deep_gemm.transform_weights_for_mega_moe((w1, s1), (w2, s2))
transformed = memory("VmRSS")
buffer.topk_idx[:1], buffer.topk_weights[:1] = [0, 1], 0.5
y = numpy.zeros((1, H), dtype=numpy.uint16)
deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer)
print(values, transformed - before, memory("VmHWM") - before)
other = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 8, 2, H, I)
other.topk_idx[:1], other.topk_weights[:1] = [0, 1], 0.5
packed = memory("VmRSS")
deep_gemm.fp8_fp4_mega_moe(y, *halves, other, activation_clamp=1.0)
print(memory("VmRSS") - packed)
del w1, w2, s1, s2
print(packed - memory("VmRSS"))
"""


@pytest.fixture(scope="module")
def packing():
    return [int(word) for word in output_of(PACKING).split()]


def test_transforming_weights_copies_nothing(packing):
    _, transformed, _, _, _ = packing
    assert transformed < 4 * MIB


def test_another_buffer_shares_the_packed_weights(packing):
    values, _, _, added, _ = packing
    assert added < values / 4


def test_the_arrays_may_go_once_they_are_packed(packing):
    values, _, _, _, freed = packing
    assert freed > 0.75 * values


def test_packing_makes_one_copy_of_the_weights(packing):
    values, _, peak, _, _ = packing
    # Packed, they take as much as stored, and some padding; one expert at a time may stand beside them.
    assert values < peak + 4 * MIB, "nothing was packed: the test measures something else"
    assert peak < 1.25 * values + 16 * MIB
