"""FP8 MQA logits under DeepGEMM's names, on the CPU."""
import ml_dtypes
import numpy
import pytest

import megamoe
from megamoe import deep_gemm

S, HEADS, D, KEYS = 7, 5, 64, 150


class Case:
    def __init__(self, seed=1, weights=numpy.float32):
        g = numpy.random.default_rng(seed)
        self.q = g.standard_normal((S, HEADS, D)).astype(ml_dtypes.float8_e4m3fn)
        self.kv = g.standard_normal((KEYS, D)).astype(ml_dtypes.float8_e4m3fn)
        self.scale = g.uniform(0.5, 2, KEYS).astype(numpy.float32)
        self.weights = g.standard_normal((S, HEADS)).astype(weights)
        self.ks = numpy.array([0, -5, 20, 150, 60, 10, 0], dtype=numpy.int32)
        self.ke = numpy.array([150, 40, 200, 150, 50, 11, 0], dtype=numpy.int32)

    def expected(self, ks, ke):
        products = numpy.einsum("ihd,jd->ihj", self.q.astype(float), self.kv.astype(float))
        logits = (numpy.maximum(products, 0) * self.weights.astype(float)[:, :, None]).sum(axis=1) * self.scale
        columns = numpy.arange(KEYS)
        inside = (columns >= ks[:, None]) & (columns < ke[:, None])
        return numpy.where(inside, logits, -numpy.inf)


@pytest.mark.parametrize("weights", [numpy.float32, numpy.float16])
def test_logits_agree_with_numpy(weights):
    case = Case(weights=weights)
    logits = deep_gemm.fp8_mqa_logits(case.q, (case.kv, case.scale), case.weights, case.ks, case.ke)
    assert logits.dtype == numpy.float32 and logits.shape == (S, KEYS)
    numpy.testing.assert_allclose(logits, case.expected(case.ks, case.ke), rtol=1e-4, atol=1e-3)


def test_the_number_of_workers_changes_no_bit_and_uint8_is_fp8():
    case = Case()
    one = deep_gemm.fp8_fp4_mqa_logits(case.q, (case.kv, case.scale), case.weights, case.ks, case.ke, workers=1)
    more = deep_gemm.fp8_mqa_logits(case.q.view(numpy.uint8), (case.kv.view(numpy.uint8), case.scale), case.weights, case.ks,
                                    case.ke, workers=3)
    assert (one == more).all()


def test_bfloat16_logits_are_the_rounded_ones():
    case = Case()
    arguments = (case.q, (case.kv, case.scale), case.weights, case.ks, case.ke)
    narrow = deep_gemm.fp8_mqa_logits(*arguments, logits_dtype="bfloat16")
    assert (narrow == deep_gemm.fp8_mqa_logits(*arguments).astype(ml_dtypes.bfloat16)).all()


@pytest.mark.parametrize("per_row", [False, True])
def test_paged_logits_are_those_of_keys_in_one_piece(per_row):
    case = Case()
    next_n = 7
    order = numpy.array([3, 0, 2])
    cache = numpy.full((4, 64, 1, D + 4), 0xFF, dtype=numpy.uint8)
    for block, page in enumerate(order):
        keys = slice(64 * block, min(64 * block + 64, KEYS))
        count = keys.stop - keys.start
        flat = cache[page].reshape(-1)
        flat[:count * D] = case.kv[keys].view(numpy.uint8).reshape(-1)
        flat[64 * D:64 * D + 4 * count] = case.scale[keys].view(numpy.uint8)
    ends = numpy.arange(KEYS - 6, KEYS + 1, dtype=numpy.int32)
    lengths = ends[None] if per_row else numpy.array([KEYS], dtype=numpy.int32)
    logits = deep_gemm.fp8_paged_mqa_logits(
        case.q[None], cache, case.weights, lengths, order[None].astype(numpy.int32),
        deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, 132), KEYS, clean_logits=True)
    whole = deep_gemm.fp8_mqa_logits(case.q, (case.kv, case.scale), case.weights, numpy.zeros(next_n, dtype=numpy.int32), ends)
    assert (logits == whole).all()


def refused(**change):
    case = Case()
    given = {"q": case.q, "kv": (case.kv, case.scale), "weights": case.weights, "ks": case.ks, "ke": case.ke} | change
    deep_gemm.fp8_mqa_logits(**given)


@pytest.mark.parametrize("change, error, message", [
    ({"q": (Case().q, Case().weights)}, megamoe.UnsupportedError, "q comes with scales, as FP4 does"),
    ({"kv": Case().kv}, megamoe.InvalidArgumentError, "kv is no pair"),
    ({"weights": Case().weights[:, :4].copy()}, megamoe.InvalidArgumentError, r"weights is \[7, 4\]: \[7, 5\]"),
    ({"ks": Case().ks.astype(numpy.int64)}, megamoe.InvalidArgumentError, "ks has elements of int64: int32"),
    ({"logits_dtype": "float64"}, megamoe.UnsupportedError, "logits of float64"),
    ({"q": Case().q.astype(numpy.float32)}, megamoe.InvalidArgumentError, "q has elements of float32"),
])
def test_what_is_not_understood_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        refused(**change)


