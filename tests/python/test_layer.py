"""megamoe.Layer: the main path, from a checkpoint folder to y."""
import time

import fixtures
import ml_dtypes
import numpy
import pytest

import megamoe

EXECUTIONS = ("fused", "split", "staged")
# Relative L2 of bf16 activations: the roundings of the contract.
BF16_TOLERANCE = 6e-3


def bits(array):
    return numpy.asarray(array).view(numpy.uint16)


def loaded(family, max_tokens=32, **options):
    """A layer of a fixture, its routed input, and what should come out."""
    x, output = fixtures.expected(family)
    checkpoint = megamoe.load_layer(fixtures.FOLDER / family, 0, max_tokens=max_tokens)
    layer = megamoe.Layer(checkpoint.config, checkpoint, **options)
    experts, weights = megamoe.route(checkpoint.router, x)
    return layer, x, experts, weights, output


def test_every_family_gives_its_outputs_in_every_execution(family):
    layer, x, experts, weights, output = loaded(family)
    first = layer(x, experts, weights)
    assert fixtures.relative_l2(megamoe.to_float32(first), output) < BF16_TOLERANCE
    for execution in EXECUTIONS:
        assert (bits(layer(x, experts, weights, execution=execution)) == bits(first)).all(), execution


def test_fp8_activations_stay_close(family):
    x, output = fixtures.expected(family)
    checkpoint = megamoe.load_layer(fixtures.FOLDER / family, 0, max_tokens=32)
    checkpoint.config.recipe = {"bf16_fp8": "fp8_fp8", "bf16_bf16": "fp8_fp8"}.get(checkpoint.config.recipe, "fp8_fp4")
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    y = layer(x, *megamoe.route(checkpoint.router, x))
    assert 1e-3 < fixtures.relative_l2(megamoe.to_float32(y), output) < 7e-2


def test_ranks_that_are_threads_give_the_bits_of_one(family, in_threads):
    layer, x, experts, weights, _ = loaded(family)
    alone = bits(layer(x, experts, weights))
    groups = megamoe.Group.threads(3)
    parts = numpy.array_split(numpy.arange(len(x)), 3)
    checkpoint = megamoe.load_layer(fixtures.FOLDER / family, 0, max_tokens=32)

    def rank(r):
        mine = megamoe.Layer(checkpoint.config, checkpoint, groups[r])
        return bits(mine(x[parts[r]], experts[parts[r]], weights[parts[r]], execution="split"))

    assert (numpy.concatenate(in_threads(3, rank)) == alone).all()


def test_a_filled_batch_gives_the_bits_of_a_call():
    layer, x, experts, weights, _ = loaded("deepseek_v3")
    alone = bits(layer(x, experts, weights))
    batch = layer.batch(len(x))
    batch.x[:], batch.experts[:], batch.weights[:] = x, experts, weights
    assert (bits(layer.forward(batch)) == alone).all()
    batch.x[:] = 0
    assert (bits(layer.forward(batch, x=x)) == alone).all()
    batch.x[:] = 0
    assert not bits(layer.forward(batch)).any(), "x of the call before must not stay set"


def test_converted_x_in_the_batch_gives_the_bits_of_a_call():
    x, _ = fixtures.expected("gpt_oss")
    checkpoint = megamoe.load_layer(fixtures.FOLDER / "gpt_oss", 0, max_tokens=32)
    checkpoint.config.recipe = "fp8_fp4"
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    experts, weights = megamoe.route(checkpoint.router, x)
    batch = layer.batch(len(x))
    batch.x[:], batch.x_scales[:] = megamoe.convert_x("fp8_fp4", x)
    batch.experts[:], batch.weights[:] = experts, weights
    assert (bits(layer.forward(batch)) == bits(layer(x, experts, weights))).all()


def test_batches_show_the_layers_memory():
    layer, *_ = loaded("mixtral")
    layer.batch(4).experts[:] = 3
    again = layer.batch(8)
    assert (again.experts[:4] == 3).all()
    assert again.x.shape == (8, 128) and again.x.dtype == numpy.uint16
    assert again.x_scales is None
    assert again.weights.shape == (8, 2) and again.weights.dtype == numpy.float32


def test_views_outlive_the_layer():
    layer, *_ = loaded("mixtral")
    experts = layer.batch(4).experts
    del layer
    experts[:] = 7
    assert (experts == 7).all()


def test_y_of_the_caller_is_written_in_place():
    layer, x, experts, weights, _ = loaded("qwen3_moe")
    y = numpy.full((len(x), 160), 0xFFFF, dtype=numpy.uint16)
    assert layer(x, experts, weights, y) is y
    assert (y == bits(layer(x, experts, weights))).all()


def test_ids_may_be_narrow_and_negative():
    layer, x, experts, weights, _ = loaded("mixtral")
    experts[0] = -1
    wide = bits(layer(x, experts, weights))
    assert not wide[0].any() and wide[1].any()
    assert (bits(layer(x, experts.astype(numpy.int32), weights)) == wide).all()


def test_no_tokens_is_a_call():
    layer, x, experts, weights, _ = loaded("mixtral")
    assert layer(x[:0], experts[:0], weights[:0]).shape == (0, 128)


def test_a_graph_reads_what_changed_and_leaves_other_rows():
    layer, x, experts, weights, _ = loaded("qwen3_moe", max_tokens=32)
    y = numpy.full((32, 160), 0x1234, dtype=numpy.uint16)
    graph = layer.graph(y, execution="split")
    for tokens in (23, 5):
        y[:] = 0x1234
        batch = layer.batch(tokens)
        batch.x[:], batch.experts[:], batch.weights[:] = x[:tokens], experts[:tokens], weights[:tokens]
        graph.replay(tokens)
        assert (y[tokens:] == 0x1234).all()
        assert (y[:tokens] == bits(layer(x[:tokens], experts[:tokens], weights[:tokens]))).all()


def test_a_graph_keeps_its_layer_and_its_memory():
    layer, x, experts, weights, _ = loaded("mixtral")
    wanted = bits(layer(x, experts, weights))
    graph = layer.graph(numpy.zeros((32, 128), dtype=numpy.uint16))
    y = graph.y
    batch = layer.batch(len(x))
    batch.x[:] = x
    del layer, batch
    graph.replay(len(x))
    assert (y[:len(x)] == wanted).all()


def test_packed_experts_go_to_a_file_and_back(tmp_path):
    layer, x, experts, weights, _ = loaded("gpt_oss")
    layer.save_packed(tmp_path / "packed.safetensors")
    again = megamoe.Layer(layer.config, tmp_path / "packed.safetensors")
    assert (bits(again(x, experts, weights)) == bits(layer(x, experts, weights))).all()


def test_refresh_replaces_the_weights():
    layer, x, experts, weights, _ = loaded("mixtral")
    before = bits(layer(x, experts, weights)).copy()
    w1 = numpy.zeros((4, 320, 128), dtype=numpy.uint16)
    layer.refresh(megamoe.Weights(w1, numpy.zeros((4, 128, 160), dtype=numpy.uint16)))
    assert not bits(layer(x, experts, weights)).any()
    layer.refresh(megamoe.load_layer(fixtures.FOLDER / "mixtral", 0))
    assert (bits(layer(x, experts, weights)) == before).all()


def test_the_report_counts_rows():
    layer, x, experts, weights, _ = loaded("qwen3_moe")
    layer(x, experts, weights)
    report = layer.report
    assert report.tokens == 23 and report.routes == 23 * 4
    assert report.rows_per_expert == numpy.bincount(experts.reshape(-1), minlength=12).tolist()
    assert report.total_ns > 0 and report.flops == 6 * 160 * 96 * 92


def test_a_call_costs_little_over_that_of_cpp():
    layer, x, experts, weights, _ = loaded("mixtral", workers=1)
    x, experts, weights = x[:8].view(ml_dtypes.bfloat16), experts[:8], weights[:8]
    y = numpy.empty_like(x)
    costs = []
    for _ in range(500):
        began = time.perf_counter_ns()
        layer(x, experts, weights, y)
        costs.append(time.perf_counter_ns() - began - layer.report.total_ns)
    assert min(costs) < 10_000, "nanoseconds, in the best of many: others use the machine"


def test_options_reach_the_plan():
    layer, *_ = loaded("mixtral", workers=3, k1_workers=2, k2_workers=4, block_rows=96, instruction_set="scalar")
    text = layer.explain()
    assert "scalar" in text and "3 fused or staged" in text and "96 rows" in text
    planned = megamoe.plan(layer.config, 2, workers=3, block_rows=96)
    assert planned.workers == 3 and planned.block_rows == 96
    assert planned.arena_bytes > sum(planned.region_bytes.values()) - 1 and "combine" in planned.region_bytes


def test_config_is_a_copy():
    layer, *_ = loaded("mixtral")
    layer.config.max_tokens = 1
    assert layer.config.max_tokens == 32
    with pytest.raises(megamoe.InvalidArgumentError, match="unknown recipe"):
        layer.config.recipe = "fp3"


def test_help_tells_how_to_use_it():
    import pydoc

    text = pydoc.render_doc(megamoe.Layer, renderer=pydoc.plaintext)
    for word in ("Raises", "max_tokens", "bf16 [tokens, H]", "int64", "load_layer", "graph"):
        assert word in text
