"""Routers and checkpoints."""
import os

import numpy

from . import _core
from ._arrays import exportable, is_torch


def route(router, x, experts=None, weights=None):
    """Routes tokens.

    Args:
        router: a RouterConfig.
        x: bf16 [tokens, hidden] in host memory.
        experts: int64 [tokens, top_k] to write (as Batch.experts), or None for a new array of x's framework.
        weights: float32 [tokens, top_k] to write, or None likewise.
    Returns:
        (experts, weights), best first. Logits are summed in float64 and rounded to float32; ties go to the lower id.
    Raises:
        InvalidArgumentError on sizes that do not fit.
    """
    shape = (x.shape[0], router.top_k)
    if experts is None:
        experts = _empty(shape, "int64", x)
    if weights is None:
        weights = _empty(shape, "float32", x)
    _core.route(router, exportable(x), exportable(experts), exportable(weights))
    return experts, weights


def _empty(shape, dtype, like):
    if is_torch(like):
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype))
    return numpy.empty(shape, dtype=dtype)


def load_layer(directory, layer=0, *, max_tokens=0):
    """One mixture-of-experts layer of a checkpoint folder as Hugging Face publishes it: config.json and model.safetensors,
    or shards and model.safetensors.index.json. Files are mapped, not read.

    Args:
        directory: the folder.
        layer: its number, from 0.
        max_tokens: for the config: tokens per rank and call; a Layer needs it to be at least 1.
    Returns:
        a CheckpointLayer.
    Raises:
        FormatError that names the file, tensor or key for anything broken or not understood; IoError when the system
        refuses; UnsupportedError for what is understood but not run.
    """
    loaded = _core.load_layer(os.fspath(directory), layer)
    loaded.config.max_tokens = max_tokens
    return loaded


def convert_x(recipe, x):
    """x in a recipe's format, with the bits that Layer.__call__ makes of it.

    Args:
        recipe: as LayerConfig.recipe.
        x: bf16 [tokens, H] in host memory.
    Returns:
        (values, scales) of NumPy, as Batch.x and Batch.x_scales show them; scales is None for bf16 recipes.
    """
    tokens, hidden = x.shape
    values = numpy.empty((tokens, _core.x_row_bytes(recipe, hidden)), dtype=numpy.uint8)
    scales = numpy.empty((tokens, _core.x_scale_row_bytes(recipe, hidden)), dtype=numpy.uint8)
    _core.convert_x(recipe, exportable(x), values, scales)
    if scales.shape[1] == 0:
        return values.view(numpy.uint16), None
    return values, scales.view(numpy.float32) if recipe == "fp8_fp8" else scales
