"""megamoe.deep_gemm: DeepGEMM's names, on NumPy arrays and CPUs."""
import fixtures
import ml_dtypes
import numpy
import pytest
import reference

import megamoe
from megamoe import deep_gemm

E, K, H, I = 6, 2, 256, 128
TOLERANCE = 1e-2  # relative L2: a flipped FP8 rounding of the intermediate costs 5e-3 in the mean


class Fp4Case:
    """A layer of recipe fp8_fp4, as DeepGEMM's callers have it, and in float64."""

    def __init__(self, seed=1, tokens=40, shared=0):
        g = numpy.random.default_rng(seed)
        self.x_bf16 = g.standard_normal((tokens, H)).astype(ml_dtypes.bfloat16)
        self.x, self.x_sf = deep_gemm.per_token_cast_to_fp8(self.x_bf16, True, 32, True)
        self.ids = numpy.stack([g.permutation(E)[:K] for _ in range(tokens)])
        self.ids[3, 1] = -1
        self.factors = g.random((tokens, K), dtype=numpy.float32)
        self.w1, self.wide1 = self.matrices(g, E, 2 * I, H)
        self.w2, self.wide2 = self.matrices(g, E, H, I)
        self.shared1, self.shared_wide1 = self.matrices(g, 1, 2 * shared * I, H) if shared else (None, None)
        self.shared2, self.shared_wide2 = self.matrices(g, 1, H, shared * I) if shared else (None, None)
        self.shared = shared

    @staticmethod
    def matrices(g, experts, rows, columns):
        values = g.integers(0, 256, (experts, rows, columns // 2), dtype=numpy.uint8)
        scales = g.integers(121, 125, (experts, rows, columns // 32), dtype=numpy.uint8)
        wide = reference.from_e2m1(values) * reference.spread(reference.from_ue8m0(scales), 32, columns)
        return (values.view(numpy.int8), scales.view(numpy.int32)), wide

    def fill(self, buffer, tokens=slice(None)):
        count = len(self.x[tokens])
        buffer.x[:count], buffer.x_sf[:count] = self.x[tokens], self.x_sf[tokens]
        buffer.topk_idx[:count], buffer.topk_weights[:count] = self.ids[tokens], self.factors[tokens]
        return numpy.zeros((count, H), dtype=numpy.uint16)

    def expected(self, clamp=None):
        x = reference.from_e4m3(self.x) * reference.spread(reference.from_ue8m0(self.x_sf.view(numpy.uint8)), 32, H)
        shared = []
        for s in range(self.shared):
            gate, up = numpy.split(self.shared_wide1[0], 2)
            rows = slice(s * I, (s + 1) * I)
            shared.append((numpy.concatenate([gate[rows], up[rows]]), self.shared_wide2[0][:, rows]))
        return reference.layer(x, self.ids, self.factors, self.wide1, self.wide2, clamp, shared=shared)


def buffer_of(group=None, tokens=40, **options):
    return deep_gemm.get_symm_buffer_for_mega_moe(group, E, tokens, K, H, I, **options)


def difference(y, wanted):
    return fixtures.relative_l2(megamoe.to_float32(y), wanted)


@pytest.mark.parametrize("clamp", [None, 1.5])
def test_the_call_gives_the_layer(clamp):
    case = Fp4Case()
    buffer = buffer_of()
    l1, l2 = deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2)
    y = case.fill(buffer)
    stats = numpy.full(E, 100, dtype=numpy.int32)
    deep_gemm.fp8_fp4_mega_moe(y, l1, l2, buffer, cumulative_local_expert_recv_stats=stats, activation_clamp=clamp)
    wanted = case.expected(clamp)
    assert difference(y, wanted) < TOLERANCE
    assert deep_gemm.calc_diff(y, wanted) < 1e-4
    assert (stats - 100 == numpy.bincount(case.ids[case.ids >= 0], minlength=E)).all()


def test_columns_of_scales_may_lie_apart():
    case = Fp4Case()
    buffer = buffer_of()
    results = []
    for spread in (False, True):
        pairs = [(w, numpy.asfortranarray(sf.transpose(0, 2, 1)).transpose(0, 2, 1) if spread else sf)
                 for w, sf in (case.w1, case.w2)]
        y = case.fill(buffer)
        deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(*pairs), buffer)
        results.append(y)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("stacked", [False, True])
def test_shared_experts_are_added(stacked):
    case = Fp4Case(shared=2)
    buffer = buffer_of(num_shared_experts=2)
    shared = [case.shared1, case.shared2]
    if stacked:
        gate_up = [numpy.concatenate(numpy.split(part[0].reshape(2, 2, I, -1), 2, axis=0), axis=0).transpose(1, 0, 2, 3)
                   .reshape(2, 2 * I, -1).copy() for part in case.shared1]
        down = [part[0].reshape(H, 2, -1).transpose(1, 0, 2).copy() for part in case.shared2]
        shared = [tuple(gate_up), tuple(down)]
    else:
        shared = [tuple(part[0] for part in pair) for pair in shared]
    y = case.fill(buffer)
    deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2), buffer,
                               *deep_gemm.transform_weights_for_mega_moe(*shared))
    assert difference(y, case.expected()) < TOLERANCE


def test_ranks_give_the_bits_of_one(in_threads):
    case = Fp4Case()
    alone = buffer_of()
    y = case.fill(alone)
    deep_gemm.fp8_fp4_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2), alone)
    groups = megamoe.Group.threads(2)

    def rank(r):
        buffer = buffer_of(groups[r])
        assert buffer.group is groups[r] and len(buffer.handle.buffer_ptrs) == 2
        assert buffer.handle.buffer_ptrs[r] == buffer.buffer.ctypes.data
        mine = slice(r * E // 2, (r + 1) * E // 2)
        halves = deep_gemm.transform_weights_for_mega_moe(*[tuple(part[mine] for part in pair) for pair in (case.w1, case.w2)])
        tokens = slice(0, 11) if r == 0 else slice(11, 40)
        results = []
        for _ in range(2):
            part = case.fill(buffer, tokens)
            deep_gemm.fp8_fp4_mega_moe(part, *halves, buffer)
            results.append(part)
            buffer.buffer[:] = -1  # between calls the memory may hold anything
            groups[r].meet()
        assert (results[0] == results[1]).all()
        return results[0]

    assert (numpy.concatenate(in_threads(2, rank)) == y).all()


def fp8_case():
    """(x, x_sf), ids, weights of transform_weights_for_mega_moe_sm90, and what twenty tokens of factors 0.5 give."""
    g = numpy.random.default_rng(2)
    x_bf16 = g.standard_normal((20, H)).astype(ml_dtypes.bfloat16)
    x, x_sf = deep_gemm.per_token_cast_to_fp8(x_bf16, False, 128)
    pairs, wide = [], []
    for rows, columns in ((2 * I, H), (H, I)):
        casts = [deep_gemm.per_block_cast_to_fp8(g.standard_normal((rows, columns)).astype(numpy.float32) / 16, False)
                 for _ in range(E)]
        values, scales = (numpy.stack(part) for part in zip(*casts))
        pairs.append((values, scales))
        wide.append(reference.from_e4m3(values) * reference.spread_blocks(scales.astype(numpy.float64), rows, columns))
    ids = numpy.stack([g.permutation(E)[:K] for _ in range(20)])
    deq = reference.from_e4m3(x) * reference.spread(x_sf.astype(numpy.float64), 128, H)
    return (x, x_sf), ids, pairs, reference.layer(deq, ids, numpy.full((20, K), 0.5), *wide)


def test_fp8_weights():
    x, ids, pairs, wanted = fp8_case()
    buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, E, 20, K, H, I)
    buffer.x[:20], buffer.x_sf[:20], buffer.topk_idx[:20], buffer.topk_weights[:20] = *x, ids, 0.5
    y = numpy.zeros((20, H), dtype=numpy.uint16)
    deep_gemm.fp8_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe_sm90(*pairs), buffer)
    assert difference(y, wanted) < TOLERANCE


def test_bf16_weights():
    g = numpy.random.default_rng(4)
    w1 = (g.standard_normal((E, 2 * I, H)) / 16).astype(ml_dtypes.bfloat16)
    w2 = (g.standard_normal((E, H, I)) / 16).astype(ml_dtypes.bfloat16)
    x = g.standard_normal((9, H)).astype(ml_dtypes.bfloat16)
    buffer = buffer_of(mma_type="bf16xbf16")
    ids = numpy.stack([g.permutation(E)[:K] for _ in range(9)])
    buffer.x[:9], buffer.topk_idx[:9], buffer.topk_weights[:9] = x.view(numpy.uint16), ids, 0.5
    assert buffer.x_sf is None
    y = numpy.zeros((9, H), dtype=numpy.uint16)
    deep_gemm.bf16_mega_moe(y, *deep_gemm.transform_weights_for_mega_moe(w1, w2), buffer)
    wanted = reference.layer(x.astype(float), ids, numpy.full((9, K), 0.5), w1.astype(float), w2.astype(float), fp8=False)
    assert difference(y, wanted) < 5e-3


def test_the_split_graph_gives_the_bits_of_the_call():
    cases = [Fp4Case(seed) for seed in (1, 2)]
    halves = deep_gemm.transform_weights_for_mega_moe(cases[0].w1, cases[0].w2)
    buffers = [deep_gemm.get_symm_buffer_for_mega_moe_split(None, E, 40, K, H, I) for _ in cases]
    states = [numpy.full(16, 99, dtype=numpy.int32) for _ in cases]
    stats = [numpy.zeros(E, dtype=numpy.int32) for _ in cases]
    ys = [numpy.full((40, H), 0x1234, dtype=numpy.uint16) for _ in cases]
    graph = deep_gemm.SM100FP8FP4MegaMoESplitGraph(
        states, ys, buffers, [halves[0]] * 2, [halves[1]] * 2, stats, 40, None, True, 96, 52, 148, 0, 0)
    assert graph.get_green_context_ids() == []
    for tokens in (40, 7):
        for case, buffer, y in zip(cases, buffers, ys):
            case.fill(buffer)
            y[:] = 0x1234
        graph.replay(tokens)
        for case, y, state in zip(cases, ys, states):
            fused = buffer_of()
            wanted = case.fill(fused, slice(tokens))
            deep_gemm.fp8_fp4_mega_moe(wanted, *halves, fused)
            assert (y[:tokens] == wanted).all() and (y[tokens:] == 0x1234).all()
            # One block per expert with rows, one GEMM-2 task of 256 outputs per block.
            experts = len(numpy.unique(case.ids[:tokens][case.ids[:tokens] >= 0]))
            assert state[3] == experts and state[4] >= 1 and state[5] == tokens
            assert (state[[0, 1, 2, 6, 15]] == 99).all()
    assert (stats[0] == numpy.bincount(cases[0].ids[cases[0].ids >= 0], minlength=E)
            + numpy.bincount(cases[0].ids[:7][cases[0].ids[:7] >= 0], minlength=E)).all()


def test_buffers_share_nothing():
    one, other = buffer_of(), buffer_of()
    one.topk_idx[:] = 3
    other.topk_idx[:] = 5
    assert (one.topk_idx == 3).all()


def test_buffers_share_what_the_weights_were_packed_to():
    case = Fp4Case(shared=1)
    halves = deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2)
    results = []
    for clamp, tokens in ((None, 40), (1.5, 400), (None, 40)):
        buffer = buffer_of(tokens=tokens)
        y = case.fill(buffer)
        deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer, activation_clamp=clamp)
        buffer.destroy()
        results.append(y)
    assert (results[0] == results[2]).all()
    case.shared = 0
    assert difference(results[1], case.expected(1.5)) < TOLERANCE
    shared = deep_gemm.transform_weights_for_mega_moe(case.shared1, case.shared2)
    with pytest.raises(megamoe.InvalidArgumentError, match="transform them once more"):
        deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer_of(num_shared_experts=1), *shared)


def test_a_buffer_shows_the_interfaces_shapes():
    buffer = buffer_of(tokens=385)
    cap = 768
    assert buffer.num_max_tokens_per_rank == cap == deep_gemm.utils.align(385, deep_gemm.get_token_alignment_for_mega_moe())
    assert (buffer.num_experts, buffer.num_topk, buffer.hidden, buffer.intermediate_hidden) == (E, K, H, I)
    for name, dtype, shape in (("x", "uint8", (cap, H)), ("x_sf", "int32", (cap, H // 128)), ("topk_idx", "int64", (cap, K)),
                               ("topk_weights", "float32", (cap, K)), ("buffer", "int8", buffer.buffer.shape)):
        view = getattr(buffer, name)
        assert view.dtype == dtype and view.shape == shape, name
    assert buffer.l1_acts.shape[1] == H and buffer.l2_acts.shape[1] == I and buffer.l1_acts_sf.shape[1] == H // 128
    begin = buffer.buffer.ctypes.data
    assert begin < buffer.x.ctypes.data < begin + buffer.buffer.nbytes
    buffer.destroy()
    assert buffer.x is None and buffer.buffer is None
    with pytest.raises(megamoe.InvalidArgumentError, match="destroyed"):
        deep_gemm.fp8_fp4_mega_moe(numpy.zeros((0, H), dtype=numpy.uint16),
                                   *deep_gemm.transform_weights_for_mega_moe(Fp4Case().w1, Fp4Case().w2), buffer)


def refused(buffer=None, y=None, halves=None, **options):
    case = Fp4Case()
    halves = deep_gemm.transform_weights_for_mega_moe(case.w1, case.w2) if halves is None else halves
    y = numpy.zeros((4, H), dtype=numpy.uint16) if y is None else y
    deep_gemm.fp8_fp4_mega_moe(y, *halves, buffer_of() if buffer is None else buffer, **options)


@pytest.mark.parametrize("call, error, message", [
    (lambda: refused(recipe=(1, 1, 128)), megamoe.InvalidArgumentError, r"recipe is \(1, 1, 128\)"),
    (lambda: refused(activation="gelu"), megamoe.InvalidArgumentError, "activation 'gelu'"),
    (lambda: refused(activation_clamp=-1), megamoe.InvalidArgumentError, "activation_limit is -1"),
    (lambda: refused(halves=(None, None)), megamoe.InvalidArgumentError, "l1_weights are a NoneType"),
    (lambda: refused(halves=deep_gemm.transform_weights_for_mega_moe(Fp4Case().w1, Fp4Case().w2)[::-1]),
     megamoe.InvalidArgumentError, "they are swapped"),
    (lambda: refused(buffer=buffer_of(mma_type="bf16xbf16")), megamoe.InvalidArgumentError, "the buffer is of recipe bf16_bf16"),
    (lambda: refused(buffer=buffer_of(num_shared_experts=1)), megamoe.InvalidArgumentError, "shared_l1_weights and"),
    (lambda: refused(y=numpy.zeros((4, 128), dtype=numpy.uint16)), megamoe.InvalidArgumentError, r"y is \[4, 128\]: \[4, 256\]"),
    (lambda: refused(y=numpy.zeros((400, H), dtype=numpy.uint16)), megamoe.InvalidArgumentError, "a batch of 400 tokens"),
    (lambda: refused(cumulative_local_expert_recv_stats=numpy.zeros(E)), megamoe.InvalidArgumentError, "an int32 array"),
    (lambda: refused(cumulative_local_expert_recv_stats=numpy.zeros(E + 1, dtype=numpy.int32)), megamoe.InvalidArgumentError,
     "has 7 words: 6"),
    (lambda: buffer_of(mma_type="fp8xfp8"), megamoe.UnsupportedError, "mma_type 'fp8xfp8'"),
    (lambda: buffer_of(activation="gelu"), megamoe.InvalidArgumentError, "activation 'gelu'"),
    (lambda: buffer_of("everybody"), megamoe.InvalidArgumentError, "group is a str"),
    (lambda: deep_gemm.get_symm_buffer_for_mega_moe(None, E, 4, K, 96, I), megamoe.InvalidArgumentError, "hidden is 96"),
    (lambda: deep_gemm.transform_weights_for_mega_moe(Fp4Case().w2, Fp4Case().w1), megamoe.InvalidArgumentError, "l1 weights are"),
    (lambda: deep_gemm.MegaMoESplitGraph([], [], [], [], []), megamoe.InvalidArgumentError, "the lists have"),
    (lambda: deep_gemm.MegaMoESplitGraph([0], [0], [0], [0], [0], reduce_work_iters=4), megamoe.UnsupportedError,
     "reduce_work_iters is 4"),
])
def test_what_is_not_understood_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_unknown_options_are_errors():
    with pytest.raises(TypeError, match="num_warps"):
        refused(num_warps=4)


def test_casts_agree_with_ml_dtypes():
    g = numpy.random.default_rng(3)
    x = (g.standard_normal((30, 300)) * 10.0 ** g.integers(-3, 3, (30, 1))).astype(numpy.float32)
    for dtype in (numpy.float32, numpy.float16, ml_dtypes.bfloat16):
        wide = x.astype(dtype).astype(numpy.float64)
        padded = numpy.pad(wide, ((0, 0), (0, 20))).reshape(30, -1, 32)
        amax = numpy.abs(padded).max(axis=-1)
        values, scales = deep_gemm.per_token_cast_to_fp8(x.astype(dtype), True, 32)
        assert (scales == 2.0 ** numpy.ceil(numpy.log2(amax / 448))).all()
        rounded = (wide / reference.spread(scales.astype(float), 32, 300)).astype(ml_dtypes.float8_e4m3fn)
        assert (values == rounded.view(numpy.uint8)).all()
        values, scales = deep_gemm.per_token_cast_to_fp8(x.astype(dtype), False, 32)
        numpy.testing.assert_allclose(scales, amax / 448, rtol=1e-6)
        back = reference.from_e4m3(values) * reference.spread(scales.astype(float), 32, 300)
        assert numpy.abs(back - wide).max() <= (numpy.abs(wide).max() / 448) * 16.01
        values, scales = deep_gemm.per_token_cast_to_fp4(x.astype(dtype), True, 32)
        assert (scales == 2.0 ** numpy.ceil(numpy.log2(amax / 6))).all()
        rounded = (wide / reference.spread(scales.astype(float), 32, 300)).astype(ml_dtypes.float4_e2m1fn).astype(float)
        assert (reference.from_e2m1(values) == rounded).all()


def test_scales_are_packed_four_in_a_word():
    x = numpy.ones((2, 256), dtype=numpy.float32)
    x[:, 32:64] = 1000
    _, wide = deep_gemm.per_token_cast_to_fp8(x, True, 32)
    _, packed = deep_gemm.per_token_cast_to_fp8(x, True, 32, True)
    assert packed.dtype == numpy.int32 and packed.shape == (2, 2)
    assert (reference.from_ue8m0(packed.view(numpy.uint8)) == wide).all()
    assert (deep_gemm.transform_sf_into_required_layout(wide[None], 2, 256, (1, 32), 1)[0] == packed).all()
    with pytest.raises(megamoe.InvalidArgumentError, match="no power of two"):
        deep_gemm.transform_sf_into_required_layout(wide[None] * 1.5, 2, 256, (1, 32), 1)
    with pytest.raises(megamoe.InvalidArgumentError, match="a multiple of 4"):
        deep_gemm.per_token_cast_to_fp8(x[:, :96], True, 32, True)


def test_helpers():
    assert deep_gemm.calc_diff(numpy.ones(3), numpy.ones(3)) == 0
    assert deep_gemm.testing.calc_diff(numpy.ones(3), -numpy.ones(3)) == 2
    assert deep_gemm.get_block_m_for_mega_moe(8, 256, 8192, 8192, 8) == 192
    assert deep_gemm.get_block_m_for_mega_moe(8, 256, 8192, 64, 8) == 16
