"""Arrays of other libraries, and element formats that NumPy lacks."""
import fixtures
import ml_dtypes
import numpy
import pytest

import megamoe


class Foreign:
    """An array that only speaks DLPack."""

    def __init__(self, array):
        self._array = array
        self.shape = array.shape

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def mixtral():
    x, _ = fixtures.expected("mixtral")
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "mixtral", 0, max_tokens=32)
    return megamoe.Layer(checkpoint.config, checkpoint), x.copy(), *megamoe.route(checkpoint.router, x)


def test_any_library_with_dlpack_will_do():
    layer, x, experts, weights = mixtral()
    wanted = numpy.asarray(layer(x, experts, weights)).view(numpy.uint16)
    y = numpy.zeros_like(x)
    layer(Foreign(x), Foreign(experts), Foreign(weights), Foreign(y))
    assert (y == wanted).all()


def test_bfloat16_has_three_names():
    layer, x, experts, weights = mixtral()
    wanted = numpy.asarray(layer(x, experts, weights)).view(numpy.uint16)
    for dtype in (ml_dtypes.bfloat16, numpy.int16, numpy.uint16):
        y = numpy.zeros(x.shape, dtype=dtype)
        layer(x.view(dtype), experts, weights, y)
        assert (y.view(numpy.uint16) == wanted).all(), dtype


def test_arrays_of_jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    layer, x, experts, weights = mixtral()
    wanted = numpy.asarray(layer(x, experts, weights)).view(numpy.uint16)
    arrays = jax.device_put((x.view(ml_dtypes.bfloat16), experts.astype(numpy.int32), weights), jax.devices("cpu")[0])
    y = layer(*arrays)
    assert arrays[0].dtype == "bfloat16" and y.dtype == ml_dtypes.bfloat16
    assert (y.view(numpy.uint16) == wanted).all()


def test_views_share_memory_with_other_libraries():
    layer, *_ = mixtral()
    batch = layer.batch(3)
    numpy.from_dlpack(batch.weights)[:] = 5
    assert (batch.weights == 5).all()


def test_read_only_arrays_are_read_and_not_written():
    layer, x, experts, weights = mixtral()
    y = numpy.zeros_like(x)
    for array in (x, experts, weights, y):
        array.flags.writeable = False
    layer(x, experts, weights)
    with pytest.raises(megamoe.InvalidArgumentError, match="y is a ndarray: an array that may be written"):
        layer(x, experts, weights, y)


@pytest.mark.parametrize("change, message", [
    (lambda x, e, w: (x[:, :64], e, w), r"x is \[23, 64\]: \[any, 128\] is wanted"),
    (lambda x, e, w: (x.astype(numpy.float32), e, w), "x has elements of float32: bfloat16"),
    (lambda x, e, w: (numpy.asfortranarray(x), e, w), "x has gaps or another order"),
    (lambda x, e, w: (x, e[:22], w), r"experts is \[22, 2\]: \[23, 2\] is wanted"),
    (lambda x, e, w: (x, e.astype(numpy.float64), w), "experts has elements of float64: int64"),
    (lambda x, e, w: (x, e, w.astype(numpy.float64)), "weights has elements of float64: float32"),
    (lambda x, e, w: (x, e, "weights"), "weights is a str: an array is wanted"),
    (lambda x, e, w: (None, e, w), "x is a NoneType: an array is wanted"),
])
def test_arrays_that_do_not_fit_are_named(change, message):
    layer, *arrays = mixtral()
    with pytest.raises(megamoe.InvalidArgumentError, match=message):
        layer(*change(*arrays))


def test_rounding_to_bfloat16_is_to_nearest_even():
    generator = numpy.random.default_rng(1)
    values = generator.integers(0, 2**32, 100_000, dtype=numpy.uint64).astype(numpy.uint32).view(numpy.float32)
    values = values[numpy.isfinite(values)]
    rounded = megamoe.to_bfloat16(values)
    assert rounded.dtype == ml_dtypes.bfloat16
    assert (rounded.view(numpy.uint16) == values.astype(ml_dtypes.bfloat16).view(numpy.uint16)).all()
    assert megamoe.to_float32(megamoe.to_bfloat16(numpy.ones((2, 3)))).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_bfloat16_widens_exactly():
    bits = numpy.arange(0, 2**16, dtype=numpy.uint32).astype(numpy.uint16)
    wide = megamoe.to_float32(bits)
    assert (wide.view(numpy.uint32) == bits.astype(numpy.uint32) << 16).all()
    with pytest.raises(megamoe.InvalidArgumentError, match="float64"):
        megamoe.to_float32(numpy.zeros(3))


def random_weights(generator, format, shape):
    """Values and scales of a stack of matrices, and what they stand for."""
    import reference as r

    if format == "bf16":
        values = generator.standard_normal(shape).astype(ml_dtypes.bfloat16)
        return values, None, values.astype(numpy.float64)
    if format == "fp4":
        values = generator.integers(0, 256, (*shape[:2], shape[2] // 2), dtype=numpy.uint8)
        scales = generator.integers(122, 127, (*shape[:2], shape[2] // 32), dtype=numpy.uint8)
        return values, scales, r.from_e2m1(values) * r.spread(r.from_ue8m0(scales), 32, shape[2])
    values = generator.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    scales = generator.uniform(0.5, 2, (shape[0], -(-shape[1] // 128), -(-shape[2] // 128))).astype(numpy.float32)
    return values, scales, values.astype(numpy.float64) * r.spread_blocks(scales.astype(numpy.float64), *shape[1:])


@pytest.mark.parametrize("format", ["bf16", "fp4", "fp8"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_weights_of_arrays(format, interleaved):
    import reference as r

    if format == "fp8" and interleaved:
        pytest.skip("fp8 rows share scales: they cannot alternate")
    generator = numpy.random.default_rng(7)
    experts, hidden, intermediate = 3, 96, 160
    parts = [random_weights(generator, format, (experts, intermediate, hidden)) for _ in range(2)]
    axis = 2 if interleaved else 1
    values, scales, wide = [None if part[0] is None else
                            numpy.stack(part, axis=axis).reshape(experts, -1, part[0].shape[-1]) if interleaved else
                            numpy.concatenate(part, axis=1) for part in zip(*parts)]
    w2, w2_scales, wide2 = random_weights(generator, format, (experts, hidden, intermediate))
    biases = [generator.standard_normal((experts, n)).astype(numpy.float32) for n in (2 * intermediate, hidden)]
    weights = megamoe.Weights(values, w2, format=format, w1_scales=scales, w2_scales=w2_scales, w1_bias=biases[0] * 0,
                              w2_bias=biases[1] * 0, interleaved=interleaved)
    config = megamoe.LayerConfig(hidden=hidden, intermediate=intermediate, experts=experts, top_k=2, max_tokens=16,
                                 recipe=f"bf16_{format}")
    layer = megamoe.Layer(config, weights)
    x = generator.standard_normal((16, hidden)).astype(ml_dtypes.bfloat16)
    ids = numpy.stack([generator.permutation(experts)[:2] for _ in range(16)])
    factors = generator.random((16, 2), dtype=numpy.float32)
    gate_up = numpy.concatenate([parts[0][2], parts[1][2]], axis=1)
    wanted = r.layer(x.astype(numpy.float64), ids, factors, gate_up, wide2, fp8=False)
    assert fixtures.relative_l2(megamoe.to_float32(layer(x, ids, factors)), wanted) < 5e-3


def test_shared_experts_may_be_fp8_beside_fp4():
    import reference as r

    generator = numpy.random.default_rng(8)
    experts, hidden, intermediate = 3, 256, 128
    matrices = [random_weights(generator, format, shape) for format, count in (("fp4", experts), ("fp8", 2))
                for shape in ((count, 2 * intermediate, hidden), (count, hidden, intermediate))]
    (w1, s1, wide1), (w2, s2, wide2), (f1, fs1, shared1), (f2, fs2, shared2) = matrices
    weights = megamoe.Weights(w1, w2, format="fp4", w1_scales=s1, w2_scales=s2)
    weights.add_shared(f1, f2, format="fp8", w1_scales=fs1, w2_scales=fs2)
    config = megamoe.LayerConfig(hidden=hidden, intermediate=intermediate, experts=experts, top_k=2, max_tokens=16,
                                 shared_experts=2, shared_weights="fp8")
    x = generator.standard_normal((16, hidden)).astype(ml_dtypes.bfloat16)
    ids = numpy.stack([generator.permutation(experts)[:2] for _ in range(16)])
    factors = generator.random((16, 2), dtype=numpy.float32)
    values, scales = megamoe.convert_x("fp8_fp4", x)
    wanted = r.layer(r.from_e4m3(values) * r.spread(r.from_ue8m0(scales), 32, hidden), ids, factors, wide1, wide2,
                     shared=list(zip(shared1, shared2)))
    y = megamoe.Layer(config, weights)(x, ids, factors)
    assert fixtures.relative_l2(megamoe.to_float32(y), wanted) < 1e-2
    config.shared_weights = None
    with pytest.raises(megamoe.UnsupportedError, match="fp8"):
        megamoe.Layer(config, weights)


def test_strided_weights_are_views():
    generator = numpy.random.default_rng(3)
    w1 = generator.standard_normal((4, 128, 96)).astype(ml_dtypes.bfloat16)
    w2 = generator.standard_normal((4, 64, 64)).astype(ml_dtypes.bfloat16)
    config = megamoe.LayerConfig(hidden=64, intermediate=64, experts=2, top_k=1, max_tokens=4, recipe="bf16_bf16")
    x = generator.standard_normal((4, 64)).astype(ml_dtypes.bfloat16)
    call = (x, numpy.array([[0], [1], [1], [0]]), numpy.ones((4, 1), dtype=numpy.float32))
    strided = megamoe.Layer(config, megamoe.Weights(w1[::2, :, 32:], w2[::2]))(*call)
    dense = megamoe.Layer(config, megamoe.Weights(w1[::2, :, 32:].copy(), w2[::2].copy()))(*call)
    assert (strided.view(numpy.uint16) == dense.view(numpy.uint16)).all()


@pytest.mark.parametrize("arguments, message", [
    ({"format": "fp3"}, "weights of format 'fp3': bf16, fp4 or fp8"),
    ({"w1_scales": numpy.zeros(3, dtype=numpy.float32)}, "bf16 weights have no scales"),
    ({"format": "fp4"}, "w1 has elements of uint16: float8 or uint8 is wanted"),
    ({"w2": numpy.zeros((2, 64, 32), dtype=numpy.uint16)}, "w2 has 32 columns"),
    ({"w2": numpy.zeros((3, 64, 64), dtype=numpy.uint16)}, "w1 has 2 experts, w2 has 3"),
    ({"w1_bias": numpy.zeros((2, 64))}, r"w1_bias is \[2, 64\]: \[2, 128\] is wanted"),
    ({"w1": numpy.zeros((2, 128, 64, 1), dtype=numpy.uint16)}, "3 dimensions are wanted"),
    ({"w1": numpy.zeros((2, 128, 64), dtype=ml_dtypes.float4_e2m1fn), "format": "fp4"}, "one value per byte"),
    ({"experts": 1}, "the layer has 1"),
])
def test_weights_that_do_not_fit_are_named(arguments, message):
    given = {"w1": numpy.zeros((2, 128, 64), dtype=numpy.uint16), "w2": numpy.zeros((2, 64, 64), dtype=numpy.uint16)}
    with pytest.raises(megamoe.InvalidArgumentError, match=message):
        megamoe.Weights(**(given | arguments))
