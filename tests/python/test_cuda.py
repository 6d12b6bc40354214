"""Tensors of PyTorch on a CUDA device; skipped where there is none that the kernels run on."""
import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fixtures  # noqa: E402
import megamoe  # noqa: E402
from megamoe import deep_gemm  # noqa: E402
from test_deep_gemm import E, H, I, K, Fp4Case  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    try:
        megamoe.Group.devices([0])
    except megamoe.UnsupportedError as error:
        pytest.skip(str(error))


def test_a_layer_gives_on_the_device_what_it_gives_on_the_cpu():
    case = Fp4Case()
    config = megamoe.LayerConfig(hidden=H, intermediate=I, experts=E, top_k=K, max_tokens=64)
    weights = megamoe.Weights(case.w1[0], case.w2[0], format="fp4", w1_scales=case.w1[1].view(numpy.uint8),
                              w2_scales=case.w2[1].view(numpy.uint8))
    x = torch.from_numpy(case.x_bf16.view(numpy.int16)).view(torch.bfloat16)
    arguments = (x, torch.from_numpy(case.ids), torch.from_numpy(case.factors))
    on_cpu = megamoe.Layer(config, weights)(*arguments)
    layer = megamoe.Layer(config, weights, megamoe.Group.devices([0])[0])
    y = layer(*[tensor.cuda() for tensor in arguments])
    layer.wait()
    assert y.is_cuda and layer.poll()
    assert fixtures.relative_l2(y.float().cpu().numpy(), on_cpu.float().numpy()) < 1e-2


def test_deep_gemm_runs_on_the_device():
    case = Fp4Case()
    buffer = deep_gemm.get_symm_buffer_for_mega_moe(None, E, 40, K, H, I, framework="torch", device=0)
    pairs = [tuple(torch.from_numpy(part).cuda() for part in pair) for pair in (case.w1, case.w2)]
    halves = deep_gemm.transform_weights_for_mega_moe(*pairs)
    stats = torch.zeros(E, dtype=torch.int32, device="cuda")
    results = []
    for _ in range(2):
        buffer.buffer.fill_(-1)
        buffer.x[:40].copy_(torch.from_numpy(case.x).view(torch.float8_e4m3fn))
        for view, values in ((buffer.x_sf, case.x_sf), (buffer.topk_idx, case.ids), (buffer.topk_weights, case.factors)):
            view[:40].copy_(torch.from_numpy(values))
        y = torch.empty(40, H, dtype=torch.bfloat16, device="cuda")
        deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer, cumulative_local_expert_recv_stats=stats)
        results.append(y)
    assert torch.equal(*results)
    assert fixtures.relative_l2(y.float().cpu().numpy(), case.expected()) < 1e-2
    assert (stats.cpu().numpy() == 2 * numpy.bincount(case.ids[case.ids >= 0], minlength=E)).all()
    with pytest.raises(megamoe.UnsupportedError):
        deep_gemm.MegaMoESplitGraph([torch.zeros(8, dtype=torch.int32, device="cuda")], [y], [buffer], [halves[0]],
                                    [halves[1]]).replay()
