"""Tensors of PyTorch on a CUDA device; skipped where there is none that the kernels run on."""
import os
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fixtures  # noqa: E402
import megamoe  # noqa: E402
from megamoe import deep_gemm  # noqa: E402
from test_deep_gemm import E, H, I, K, Fp4Case, fp8_case  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    try:
        megamoe.Group.devices([0])
    except megamoe.UnsupportedError as error:
        pytest.skip(str(error))


class Layers:
    """A layer's weights and input, on the host and on the device."""

    def __init__(self, tokens=40):
        case = Fp4Case(tokens=tokens)
        self.config = megamoe.LayerConfig(hidden=H, intermediate=I, experts=E, top_k=K, max_tokens=64)
        self.weights = megamoe.Weights(case.w1[0], case.w2[0], format="fp4", w1_scales=case.w1[1].view(numpy.uint8),
                                       w2_scales=case.w2[1].view(numpy.uint8))
        x = torch.from_numpy(case.x_bf16.view(numpy.int16)).view(torch.bfloat16)
        self.on_host = (x, torch.from_numpy(case.ids), torch.from_numpy(case.factors))
        self.on_device = tuple(tensor.cuda() for tensor in self.on_host)

    def layer(self, group=None, weights=None, **changes):
        config = self.config.copy()
        for name, value in changes.items():
            setattr(config, name, value)
        return megamoe.Layer(config, self.weights if weights is None else weights,
                             megamoe.Group.devices([0])[0] if group is None else group)

    def alone(self):
        """What one rank gives on the device."""
        layer = self.layer()
        y = layer(*self.on_device)
        layer.wait()
        return y


def test_a_layer_gives_on_the_device_what_it_gives_on_the_cpu():
    case = Layers()
    on_cpu = case.layer(megamoe.Group.single())(*case.on_host)
    layer = case.layer()
    y = layer(*case.on_device)
    layer.wait()
    assert y.is_cuda and layer.poll()
    assert fixtures.relative_l2(y.float().cpu().numpy(), on_cpu.float().numpy()) < 1e-2
    with pytest.raises(megamoe.InvalidArgumentError, match="x is in host memory: CUDA device 0 is wanted"):
        layer(*case.on_host)


def test_a_call_is_on_the_current_stream_and_in_graphs():
    case = Layers()
    layer, wanted = case.layer(), case.alone()
    y = torch.zeros_like(wanted)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # some fifty milliseconds
        layer(*case.on_device, y)
        assert not layer.poll(), "the call did not wait for what its stream was given before"
    stream.synchronize()
    assert layer.poll() and torch.equal(y, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(*case.on_device, y)
    for _ in range(3):
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        layer.wait()
        assert torch.equal(y, wanted)


def test_a_graph_of_the_layer_replays():
    case = Layers()
    layer, wanted = case.layer(), case.alone()
    y = torch.full((64, H), 7, dtype=torch.bfloat16, device="cuda")
    graph = layer.graph(y)
    batch = layer.batch(40)
    values, scales = megamoe.convert_x("fp8_fp4", case.on_host[0])
    for view, part in zip((batch.x, batch.x_scales, batch.experts, batch.weights), (values, scales, *case.on_host[1:])):
        torch.from_dlpack(view).copy_(torch.as_tensor(part))
    for tokens in (40, 9):
        y.fill_(7)
        graph.replay(tokens, stream=torch.cuda.current_stream().cuda_stream)
        layer.wait()
        assert torch.equal(y[:tokens], wanted[:tokens]) and (y[tokens:] == 7).all()


def test_layers_on_the_device_share_packed_experts():
    case = Layers()
    first, wanted = case.layer(), case.alone()
    second = case.layer(weights=first.packed_experts, max_tokens=128)
    with pytest.raises(megamoe.MismatchError, match="CUDA device 0"):
        case.layer(megamoe.Group.single(), first.packed_experts)
    del first
    y = second(*case.on_device)
    second.wait()
    assert torch.equal(y, wanted)


def test_ranks_share_a_device_in_equal_parts(in_threads):
    case = Layers()
    wanted = case.alone()
    groups = megamoe.Group.devices([0, 0], deadline=5)

    def rank(r):
        layer = case.layer(groups[r])
        part = [tensor[20 * r:20 * r + 20].contiguous() for tensor in case.on_device]
        y = torch.zeros(20, H, dtype=torch.bfloat16, device="cuda")
        torch.cuda.synchronize()
        with pytest.raises(megamoe.InvalidArgumentError, match="torch.cuda.stream"):
            layer(*part, y)
        groups[r].meet()
        with torch.cuda.stream(torch.cuda.Stream()):  # on one stream the ranks would wait for each other for ever
            for _ in range(3):
                layer(*part, y)
                layer.wait()
        return y, layer.explain()

    parts, texts = zip(*in_threads(2, rank))
    assert torch.equal(torch.cat(parts), wanted)
    assert "of 2 ranks on it" in texts[0]


def test_arrays_of_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    case = Layers()
    layer, wanted = case.layer(), case.alone()
    x, experts, weights = (cupy.from_dlpack(tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor)
                           for tensor in case.on_device)
    y = cupy.zeros((40, H), dtype=cupy.int16)
    assert layer(x, experts, weights, y) is y
    assert torch.equal(torch.from_dlpack(y).view(torch.bfloat16), wanted)


def fill(buffer, case):
    """The case's forty tokens, as a caller with PyTorch fills a buffer."""
    buffer.x[:40].copy_(torch.from_numpy(case.x).view(torch.float8_e4m3fn))
    for view, values in ((buffer.x_sf, case.x_sf), (buffer.topk_idx, case.ids), (buffer.topk_weights, case.factors)):
        view[:40].copy_(torch.from_numpy(values))
    return torch.empty(40, H, dtype=torch.bfloat16, device="cuda")


def test_shared_experts_on_the_device():
    case = Fp4Case(shared=2)
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 40, K, H, I, 2, framework="torch", device=0)
    pairs = [tuple(torch.from_numpy(part).cuda() for part in pair) for pair in (case.w1, case.w2, case.shared1, case.shared2)]
    y = fill(buffer, case)
    deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(*pairs[:2]), buffer,
                               *deep_gemm.transform_weights_for_mega_moe(*pairs[2:]))
    assert fixtures.relative_l2(y.float().cpu().numpy(), case.expected()) < 1e-2


def test_fp8_weights_on_the_device():
    (x, x_sf), ids, pairs, wanted = fp8_case()
    buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, E, 20, K, H, I, framework="torch", device=0)
    buffer.x[:20].copy_(torch.from_numpy(x).view(torch.float8_e4m3fn))
    buffer.x_sf[:20].copy_(torch.from_numpy(x_sf))
    buffer.topk_idx[:20].copy_(torch.from_numpy(ids))
    buffer.topk_weights[:20] = 0.5
    weights = [(torch.from_numpy(w).view(torch.float8_e4m3fn).cuda(), torch.from_numpy(sf).cuda()) for w, sf in pairs]
    y = torch.empty(20, H, dtype=torch.bfloat16, device="cuda")
    deep_gemm.fp8_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe_sm90(*weights), buffer)
    assert fixtures.relative_l2(y.float().cpu().numpy(), wanted) < 1e-2


def test_deep_gemm_runs_on_the_device():
    case = Fp4Case()
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 40, K, H, I, framework="torch", device=0)
    pairs = [tuple(torch.from_numpy(part).cuda() for part in pair) for pair in (case.w1, case.w2)]
    halves = deep_gemm.transform_weights_for_mega_moe(*pairs)
    stats = torch.zeros(E, dtype=torch.int32, device="cuda")
    results = []
    for _ in range(2):
        buffer.buffer.fill_(-1)
        y = fill(buffer, case)
        deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer, cumulative_local_expert_recv_stats=stats)
        results.append(y)
    assert torch.equal(*results)
    assert fixtures.relative_l2(y.float().cpu().numpy(), case.expected()) < 1e-2
    assert (stats.cpu().numpy() == 2 * numpy.bincount(case.ids[case.ids >= 0], minlength=E)).all()
    state, split = torch.full((8,), 99, dtype=torch.int32, device="cuda"), torch.zeros_like(y)
    for sms in ((96, 52, 148), (80, 40, 120), (None, None, None)):
        graph = deep_gemm.MegaMoESplitGraph([state], [split], [buffer], [halves[0]], [halves[1]], [stats], kernel1_sms=sms[0],
                                            kernel2_sms=sms[1], reduce_sms=sms[2])
        split.zero_()
        graph.replay()
        assert torch.equal(split, y) and graph.get_green_context_ids() == []
        words = state.tolist()
        assert words[3] >= E and words[5] == 40 and words[:3] + words[6:] == [99] * 5
        assert words[4] == 40 if sms[1] == 40 else words[4] > 1
    assert (stats.cpu().numpy() == 5 * numpy.bincount(case.ids[case.ids >= 0], minlength=E)).all()


@pytest.mark.parametrize("execution", ["split", "staged"])
def test_executions_give_the_bits_of_fused(execution):
    case = Layers()
    layer, wanted = case.layer(), case.alone()
    y = layer(*case.on_device, execution=execution)
    layer.wait()
    assert torch.equal(y, wanted)


RANK_PROGRAM = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from test_deep_gemm import E, H, I, K, Fp4Case
from megamoe import deep_gemm
dist.init_process_group("gloo")
rank, case = dist.get_rank(), Fp4Case()
buffer = deep_gemm.get_symm_buffer_for_mega_moe(dist.group.WORLD, E, 40, K, H, I, device=0)
mine, tokens = slice(rank * E // 2, (rank + 1) * E // 2), slice(rank * 20, rank * 20 + 20)
l1, l2 = deep_gemm.transform_weights_for_mega_moe(*[tuple(torch.from_numpy(p[mine].copy()) for p in pair) for pair in (case.w1, case.w2)])
y = torch.empty(20, H, dtype=torch.bfloat16, device="cuda")
for _ in range(3):
    buffer.x[:20].copy_(torch.from_numpy(case.x[tokens].copy()).view(torch.float8_e4m3fn))
    for view, values in ((buffer.x_sf, case.x_sf), (buffer.topk_idx, case.ids), (buffer.topk_weights, case.factors)):
        view[:20].copy_(torch.from_numpy(values[tokens].copy()))
    deep_gemm.fp8_fp4_mega_moe(y, l1, l2, buffer)
    torch.cuda.synchronize()
y.view(torch.int16).cpu().numpy().tofile(f"{sys.argv[2]}/{rank}.bin")
dist.barrier()
buffer.destroy()
dist.destroy_process_group()
"""


def test_rank_processes_give_on_a_device_the_bits_of_one(tmp_path):
    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    program = [sys.executable, "-c", RANK_PROGRAM, os.path.dirname(__file__), str(tmp_path)]
    ranks = [subprocess.Popen(program, env={**environment, "RANK": str(r)}, stderr=subprocess.PIPE) for r in range(2)]
    for rank in ranks:
        _, errors = rank.communicate(timeout=60)
        assert rank.returncode == 0, errors.decode()
    case = Fp4Case()
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 40, K, H, I, framework="torch", device=0)
    y = fill(buffer, case)
    deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2), buffer)
    got = numpy.concatenate([numpy.fromfile(tmp_path / f"{r}.bin", dtype=numpy.int16) for r in range(2)])
    assert (got == y.view(torch.int16).cpu().numpy().reshape(-1)).all()


def test_mqa_logits_on_the_device():
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(33, 32, 128, generator=generator).to(torch.float8_e4m3fn)
    kv = torch.randn(200, 128, generator=generator).to(torch.float8_e4m3fn)
    scales, weights = torch.rand(200, generator=generator), torch.randn(33, 32, generator=generator)
    begin, end = torch.zeros(33, dtype=torch.int32), torch.arange(168, 201, dtype=torch.int32)
    on_host = deep_gemm.fp8_mqa_logits(q, (kv, scales), weights, begin, end)
    on_device = deep_gemm.fp8_mqa_logits(q.cuda(), (kv.cuda(), scales.cuda()), weights.cuda(), begin.cuda(), end.cuda())
    assert on_device.is_cuda
    got, inside = on_device.cpu(), on_host.isfinite()
    assert torch.equal(got.isfinite(), inside)
    assert fixtures.relative_l2(got[inside].numpy(), on_host[inside].numpy()) < 1e-3
