"""Tensors of PyTorch on the CPU; skipped where PyTorch is not installed."""
import os
import pathlib
import subprocess
import sys

import fixtures
import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import megamoe  # noqa: E402
from megamoe import deep_gemm  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"


def test_tensors_give_the_bits_of_arrays(family):
    x, _ = fixtures.expected(family)
    checkpoint = megamoe.load_layer(fixtures.FOLDER / family, 0, max_tokens=32)
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    experts, weights = megamoe.route(checkpoint.router, x)
    tensor = torch.from_numpy(x.view(numpy.int16).copy()).view(torch.bfloat16)
    ids, factors = megamoe.route(checkpoint.router, tensor)
    assert ids.dtype == torch.int64 and (ids.numpy() == experts).all()
    y = layer(tensor.requires_grad_(), ids, factors)
    assert y.dtype == torch.bfloat16
    assert (y.view(torch.int16).numpy() == numpy.asarray(layer(x, experts, weights)).view(numpy.int16)).all()


def test_weights_may_be_tensors_of_fp8():
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=generator).to(torch.float8_e4m3fn) for shape in ((2, 256, 128), (2, 128, 128))]
    scales = [torch.rand(shape, generator=generator) for shape in ((2, 2, 1), (2, 1, 1))]
    config = megamoe.LayerConfig(hidden=128, intermediate=128, experts=2, top_k=1, max_tokens=8, recipe="bf16_fp8")
    call = (torch.randn(8, 128, generator=generator).to(torch.bfloat16), torch.tensor([[0], [1]] * 4), torch.ones(8, 1))
    of_tensors = megamoe.Layer(config, megamoe.Weights(*values, format="fp8", w1_scales=scales[0], w2_scales=scales[1]))
    of_bits = megamoe.Layer(config, megamoe.Weights(*[v.view(torch.uint8).numpy() for v in values], format="fp8",
                                                    w1_scales=scales[0].numpy(), w2_scales=scales[1].numpy()))
    assert torch.equal(of_tensors(*call), of_bits(*call))


def test_casts_give_the_bits_of_arrays():
    x = torch.randn(10, 256, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    bits = x.view(torch.int16).numpy().view(numpy.uint16)
    for cast, dtype in ((deep_gemm.per_token_cast_to_fp8, torch.float8_e4m3fn), (deep_gemm.per_token_cast_to_fp4, torch.int8)):
        values, scales = cast(x, True, 32, True)
        assert values.dtype == dtype and scales.dtype == torch.int32
        wanted = cast(bits, True, 32, True)
        assert (values.view(torch.uint8).numpy() == wanted[0]).all() and (scales.numpy() == wanted[1]).all()
    assert deep_gemm.calc_diff(x, x) == 0


def deep_gemm_call(framework, group=None):
    """A call with PyTorch's or NumPy's arrays of the same bits: bits of y, statistics."""
    from test_deep_gemm import E, H, I, K, Fp4Case

    case = Fp4Case(shared=1)
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(group, E, 40, K, H, I, 1, framework=framework)
    as_given = torch.from_numpy if framework == "torch" else numpy.asarray
    pairs = [tuple(as_given(part) for part in pair) for pair in (case.w1, case.w2, case.shared1, case.shared2)]
    halves = [*deep_gemm.transform_weights_for_mega_moe(*pairs[:2]), *deep_gemm.transform_weights_for_mega_moe(*pairs[2:])]
    if framework == "torch":
        assert buffer.x.dtype == torch.float8_e4m3fn and buffer.buffer.dtype == torch.int8
        buffer.buffer.zero_()
        buffer.x[:40].copy_(torch.from_numpy(case.x).view(torch.float8_e4m3fn))
        for view, values in ((buffer.x_sf, case.x_sf), (buffer.topk_idx, case.ids), (buffer.topk_weights, case.factors)):
            view[:40].copy_(torch.from_numpy(values))
        y = torch.empty(40, H, dtype=torch.bfloat16)
        stats = torch.ones(E, dtype=torch.int32)
    else:
        y, stats = case.fill(buffer), numpy.ones(E, dtype=numpy.int32)
    deep_gemm.fp8_fp4_mega_moe(y, halves[0], halves[1], buffer, halves[2], halves[3], stats)
    return numpy.asarray(y.view(torch.int16) if framework == "torch" else y).view(numpy.uint16), numpy.asarray(stats)


def test_deep_gemm_takes_tensors():
    for of_tensors, of_arrays in zip(deep_gemm_call("torch"), deep_gemm_call("numpy")):
        assert (of_tensors == of_arrays).all()


RANK_PROGRAM = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from test_deep_gemm import E, H, I, K, Fp4Case
from megamoe import deep_gemm
dist.init_process_group("gloo")
rank, case = dist.get_rank(), Fp4Case()
buffer = deep_gemm.get_symm_buffer_for_mega_moe(dist.group.WORLD, E, 40, K, H, I)
mine, tokens = slice(rank * E // 2, (rank + 1) * E // 2), slice(rank * 20, rank * 20 + 20)
l1, l2 = deep_gemm.transform_weights_for_mega_moe(*[tuple(torch.from_numpy(p[mine].copy()) for p in pair) for pair in (case.w1, case.w2)])
buffer.x[:20].copy_(torch.from_numpy(case.x[tokens].copy()).view(torch.float8_e4m3fn))
for view, values in ((buffer.x_sf, case.x_sf), (buffer.topk_idx, case.ids), (buffer.topk_weights, case.factors)):
    view[:20].copy_(torch.from_numpy(values[tokens].copy()))
y = torch.empty(20, H, dtype=torch.bfloat16)
deep_gemm.fp8_fp4_mega_moe(y, l1, l2, buffer)
y.view(torch.int16).numpy().tofile(f"{sys.argv[2]}/{rank}.bin")
dist.barrier()
buffer.destroy()
dist.destroy_process_group()
"""


def test_a_process_group_of_two_gives_the_bits_of_one(tmp_path):
    from test_deep_gemm import E, H, I, K, Fp4Case

    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    program = [sys.executable, "-c", RANK_PROGRAM, os.path.dirname(__file__), str(tmp_path)]
    ranks = [subprocess.Popen(program, env={**environment, "RANK": str(r)}, stderr=subprocess.PIPE) for r in range(2)]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors.decode()
    case = Fp4Case()
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 40, K, H, I)
    y = case.fill(buffer)
    deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2), buffer)
    got = numpy.concatenate([numpy.fromfile(tmp_path / f"{r}.bin", dtype=numpy.uint16) for r in range(2)])
    assert (got == y.reshape(-1)).all()


def test_the_blocks_of_hugging_face_match_their_own_output():
    pytest.importorskip("transformers", reason="transformers is not installed")
    sys.path.insert(0, str(EXAMPLES))
    import hugging_face_block

    found = dict(hugging_face_block.differences())
    assert set(found) == {"Mixtral", "Qwen3-MoE", "gpt-oss", "DeepSeek-V3"}
    for name, difference in found.items():
        assert 0 < difference < 1e-2, name
