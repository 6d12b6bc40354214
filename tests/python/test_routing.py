"""Routers."""
import fixtures
import ml_dtypes
import numpy
import pytest

import megamoe


def softmax(logits):
    e = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("renormalise", [True, False])
def test_softmax_router_agrees_with_numpy(renormalise):
    generator = numpy.random.default_rng(5)
    weight = generator.standard_normal((10, 32)).astype(numpy.float32)
    x = generator.standard_normal((40, 32)).astype(ml_dtypes.bfloat16)
    router = megamoe.RouterConfig(weight=weight, top_k=3, renormalise=renormalise, scaling=2.5)
    experts, weights = megamoe.route(router, x)
    scores = softmax(x.astype(numpy.float64) @ weight.T.astype(numpy.float64))
    order = numpy.argsort(-scores, axis=-1, kind="stable")[:, :3]
    chosen = numpy.take_along_axis(scores, order, axis=-1)
    if renormalise:
        chosen = chosen / chosen.sum(axis=-1, keepdims=True)
    assert (experts == order).all()
    numpy.testing.assert_allclose(weights, 2.5 * chosen, rtol=1e-5)


def test_router_weights_may_be_of_any_float_type():
    weight = numpy.arange(12).reshape(3, 4)
    for array in (weight, weight.astype(numpy.float16), weight.astype(ml_dtypes.bfloat16), weight.tolist()):
        router = megamoe.RouterConfig(weight=array, top_k=1, bias=[0, 0, 100], scores="sigmoid")
        assert (router.experts, router.hidden, router.scores) == (3, 4, "sigmoid")
        experts, _ = megamoe.route(router, numpy.zeros((2, 4), dtype=numpy.uint16))
        assert experts.tolist() == [[2], [2]]


def test_the_batch_takes_what_a_router_says():
    x, _ = fixtures.expected("deepseek_v3")
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "deepseek_v3", 0, max_tokens=32)
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    batch = layer.batch(len(x))
    megamoe.route(checkpoint.router, x, batch.experts, batch.weights)
    experts, weights = megamoe.route(checkpoint.router, x)
    assert (batch.experts == experts).all() and (batch.weights == weights).all()
    assert checkpoint.router.groups == 4 and checkpoint.router.top_groups == 2


@pytest.mark.parametrize("arguments, message", [
    ({"scores": "tanh"}, "scores 'tanh'"),
    ({"weight": numpy.zeros(4)}, "weight is"),
    ({"bias": numpy.zeros(2)}, r"bias is \[2\]: \[3\] is wanted"),
    ({"weight": "heavy"}, "weight is no array of numbers"),
])
def test_routers_that_cannot_be_are_named(arguments, message):
    with pytest.raises(megamoe.InvalidArgumentError, match=message):
        megamoe.RouterConfig(**({"weight": numpy.zeros((3, 4)), "top_k": 1} | arguments))


def test_sizes_that_do_not_fit_are_named():
    router = megamoe.RouterConfig(weight=numpy.zeros((3, 4)), top_k=1)
    with pytest.raises(megamoe.InvalidArgumentError, match=r"x is \[2, 5\]"):
        megamoe.route(router, numpy.zeros((2, 5), dtype=numpy.uint16))
