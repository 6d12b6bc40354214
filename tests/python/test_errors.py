"""Errors: the classes, and the sentences of the library."""
import fixtures
import numpy
import pytest

import megamoe


@pytest.mark.parametrize("name, also", [
    ("InvalidArgumentError", ValueError), ("UnsupportedError", NotImplementedError), ("FormatError", ValueError),
    ("IoError", OSError), ("OutOfMemoryError", MemoryError), ("MismatchError", Exception),
    ("DeadlineError", TimeoutError), ("PeerLostError", ConnectionError), ("AbortedError", Exception),
    ("InternalError", Exception)])
def test_every_class_is_an_error_and_what_python_calls_it(name, also):
    cls = getattr(megamoe, name)
    assert issubclass(cls, megamoe.Error) and issubclass(cls, also)
    assert str(cls("a sentence")) == "a sentence"


def test_a_missing_file_is_an_io_error(tmp_path):
    with pytest.raises(megamoe.IoError, match="config.json cannot be opened"):
        megamoe.load_layer(tmp_path)


def test_a_broken_file_is_a_format_error(tmp_path):
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(megamoe.FormatError, match="config.json"):
        megamoe.load_layer(tmp_path)


def test_weights_that_are_not_finite_are_a_format_error():
    config = megamoe.LayerConfig(hidden=64, intermediate=64, experts=1, top_k=1, max_tokens=4, recipe="bf16_bf16")
    w1 = numpy.full((1, 128, 64), 0x7FC0, dtype=numpy.uint16)
    with pytest.raises(megamoe.FormatError, match="expert 0 gate has a value that is not finite at row 0, column 0"):
        megamoe.Layer(config, megamoe.Weights(w1, numpy.zeros((1, 64, 64), dtype=numpy.uint16)))


def test_an_id_beyond_the_experts_is_named_and_the_group_stays_usable():
    x, _ = fixtures.expected("mixtral")
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "mixtral", 0, max_tokens=32)
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    experts, weights = megamoe.route(checkpoint.router, x)
    right = layer(x, experts, weights).view(numpy.uint16)
    experts[5, 1] = 4
    y = numpy.zeros(x.shape, dtype=numpy.uint16)
    with pytest.raises(megamoe.InvalidArgumentError, match="token 5.*slot 1"):
        layer(x, experts, weights, y)
    assert numpy.isnan(megamoe.to_float32(y[5])).all()
    others = numpy.arange(len(x)) != 5
    assert (y[others] == right[others]).all()
    experts[5, 1] = 0
    layer(x, experts, weights)


def test_a_rank_that_does_not_come_is_a_deadline_error():
    groups = megamoe.Group.threads(2, deadline=0.2)
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "mixtral", 0, max_tokens=8)
    with pytest.raises(megamoe.DeadlineError, match="rank 1"):
        megamoe.Layer(checkpoint.config, checkpoint, groups[0])


def test_ranks_that_disagree_are_a_mismatch(in_threads):
    groups = megamoe.Group.threads(2, deadline=10)

    def rank(r):
        checkpoint = megamoe.load_layer(fixtures.FOLDER / "mixtral", 0, max_tokens=8 + r)
        with pytest.raises(megamoe.MismatchError, match="max_tokens: rank 0 has 8, rank 1 has 9"):
            megamoe.Layer(checkpoint.config, checkpoint, groups[r])

    in_threads(2, rank)


@pytest.mark.parametrize("make, message", [
    (lambda: megamoe.Group.threads(0), "a group of 0 ranks"),
    (lambda: megamoe.Group.processes(2, 2, "x"), "rank 2 of 2"),
    (lambda: megamoe.Group.single(deadline=-1), "the deadline is -1 seconds"),
    (lambda: megamoe.LayerConfig(hidden=1, intermediate=1, experts=1, top_k=1, max_tokens=1, recipe="int8"), "recipe"),
    (lambda: megamoe.plan(megamoe.LayerConfig(hidden=0, intermediate=1, experts=1, top_k=1, max_tokens=1)), "hidden is 0"),
])
def test_bad_arguments_are_named(make, message):
    with pytest.raises(megamoe.InvalidArgumentError, match=message):
        make()


def test_unknown_keywords_are_python_errors():
    with pytest.raises(TypeError):
        megamoe.LayerConfig(hiden=1)
