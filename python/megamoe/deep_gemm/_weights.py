"""Weights as DeepGEMM's callers have them, and the layers that are made of them."""
import numpy

from .._errors import InvalidArgumentError
from .._layer import Layer
from .._weights import Weights
from ._frameworks import on_host


class Experts:
    """The experts of one rank: in the caller's arrays until a layer packs them, then packed, for all layers of them."""

    def __init__(self, recipe, w1, w2, w1_scales, w2_scales):
        self.recipe = recipe
        self.arrays = (w1, w2, w1_scales, w2_scales)
        self.count, rows, _ = w1.shape
        self.intermediate = rows // 2
        self.hidden = w2.shape[1]
        self._packed = None  # what for, with which shared experts, and the packed experts

    def _arguments(self):
        if self.arrays is None:
            raise InvalidArgumentError("the weights are packed already, for other ranks, another device or beside other shared experts, "
                                       "and the arrays they came from are let go: transform them once more for this buffer")
        w1, w2, w1_scales, w2_scales = self.arrays
        return {"w1": w1, "w2": w2, "format": _FORMATS[self.recipe], "w1_scales": w1_scales, "w2_scales": w2_scales}

    def layer(self, config, group, shared, options):
        """A layer of these experts: the first one packs them and lets go of the arrays, others share what it packed."""
        what = (config.experts, config.shared_experts, group.rank, group.ranks, group.device)
        if self._packed is not None and self._packed[0] == what and self._packed[1] is shared:
            return Layer(config, self._packed[2], group, **options)
        first = group.rank * -(-config.experts // group.ranks) if self.count else 0
        weights = Weights(**self._arguments(), first_expert=first, experts=config.experts)
        if shared is not None:
            weights.add_shared(**split_shared(shared, config.shared_experts)._arguments())
        layer = Layer(config, weights, group, **options)
        self._packed = (what, shared, layer.packed_experts)
        for packed in (self, shared):
            if packed is not None:
                packed.arrays = None
        return layer


class MegaMoeWeights:
    """What transform_weights_for_mega_moe returns: one of the two products of the experts of this rank. Pass both of them,
    of one transform, to the calls."""

    __slots__ = ("experts", "part")

    def __init__(self, part, experts):
        self.part = part
        self.experts = experts

    def __repr__(self):
        e = self.experts
        return f"MegaMoeWeights({self.part}, {e.recipe}, experts={e.count}, hidden={e.hidden}, intermediate={e.intermediate})"


_FORMATS = {"fp8_fp4": "fp4", "fp8_fp8": "fp8", "bf16_bf16": "bf16"}


def experts_of(l1_weights, l2_weights, recipe):
    """The Experts of two halves that belong together. Raises InvalidArgumentError otherwise."""
    for weights, part in ((l1_weights, "l1"), (l2_weights, "l2")):
        if not isinstance(weights, MegaMoeWeights):
            raise InvalidArgumentError(f"{part}_weights are a {type(weights).__name__}: what a transform_weights function "
                                       f"returned is wanted")
        if weights.part != part:
            raise InvalidArgumentError(f"{part}_weights are the {weights.part} half of a transform: they are swapped")
        if weights.experts.recipe != recipe:
            raise InvalidArgumentError(f"{part}_weights are of recipe {weights.experts.recipe}: the call and its buffer run "
                                       f"{recipe}")
    if l1_weights.experts is not l2_weights.experts:
        raise InvalidArgumentError("l1_weights and l2_weights are of two transforms: pass both halves of one")
    return l1_weights.experts


def _halves(experts):
    return MegaMoeWeights("l1", experts), MegaMoeWeights("l2", experts)


def _matrix(array, what):
    matrix = on_host(array)
    if matrix.ndim not in (2, 3):
        raise InvalidArgumentError(f"{what} is {list(matrix.shape)}: [experts, rows, columns] are wanted, or [rows, columns] "
                                   f"for shared experts side by side")
    return matrix if matrix.ndim == 3 else matrix[None]


def _check_shapes(w1, w2, per_item):
    experts, rows, columns = w1.shape
    wanted = (experts, columns * per_item, rows // 2 // per_item)
    if rows % 2 or w2.shape != wanted:
        raise InvalidArgumentError(f"l1 weights are {list(w1.shape)} and l2 weights {list(w2.shape)}: l1 [E, 2 I, H / n] and l2 "
                                   f"[E, H, I / n] with n = {per_item} values per element are wanted")


def _bytes_of_scales(array, what, experts, rows, columns):
    """UE8M0 bytes [experts, rows, columns / 32] of int32 words of four (row-major or not), or of bytes."""
    scales = on_host(array)
    scales = scales if scales.ndim == 3 else scales[None]
    if scales.dtype.itemsize == 1 and scales.shape == (experts, rows, columns // 32):
        return scales.view(numpy.uint8)
    wanted = (experts, rows, columns // 128)
    if scales.dtype.itemsize != 4 or scales.dtype.kind not in "iu" or scales.shape != wanted or columns % 128:
        raise InvalidArgumentError(f"{what} are {scales.dtype} {list(scales.shape)}: int32 {list(wanted)} is wanted, four UE8M0 "
                                   f"bytes each, and columns that are a multiple of 128")
    # Scales that stand column by column are a sixteenth of the weights: a copy of them, for as long as it takes.
    return numpy.ascontiguousarray(scales).view(numpy.uint8)


def transform_weights_for_mega_moe(l1_weights, l2_weights, activation="swiglu"):
    """Weights of recipe fp8_fp4 for fp8_fp4_mega_moe, or bf16 weights for bf16_mega_moe.

    Args:
        l1_weights: (w1, w1_sf): w1 int8 or uint8 [E, 2 I, H / 2], two E2M1 per byte, the even column in the low half, gate
            rows before up rows; w1_sf int32 [E, 2 I, H / 128], four UE8M0 bytes of neighbouring groups of 32 each, with any
            strides. E: experts of this rank. Or one bf16 array [E, 2 I, H].
        l2_weights: (w2, w2_sf) with [E, H, I / 2] and [E, H, I / 128], or bf16 [E, H, I].
        For shared experts side by side: [2 S I, H / 2] and [H, S I / 2].
    Returns:
        (l1, l2) for the call. Nothing is copied here from host memory: the first call packs the weights and lets go of the
        arrays, and other buffers of the same ranks and device share what it packed. Arrays on a device are copied to the
        host, until then.
    Raises:
        InvalidArgumentError for arrays that do not fit.
    """
    _check_activation(activation)
    if not isinstance(l1_weights, (tuple, list)):
        w1, w2 = _matrix(l1_weights, "l1 weights"), _matrix(l2_weights, "l2 weights")
        _check_shapes(w1, w2, 1)
        return _halves(Experts("bf16_bf16", w1, w2, None, None))
    w1, w2 = _matrix(l1_weights[0], "l1 weights"), _matrix(l2_weights[0], "l2 weights")
    if w1.dtype.itemsize != 1 or w2.dtype.itemsize != 1:
        raise InvalidArgumentError(f"weights are {w1.dtype} and {w2.dtype}: int8 or uint8, two E2M1 per byte, is wanted")
    _check_shapes(w1, w2, 2)
    experts, rows, half = w1.shape
    w1_scales = _bytes_of_scales(l1_weights[1], "l1 scales", experts, rows, 2 * half)
    w2_scales = _bytes_of_scales(l2_weights[1], "l2 scales", experts, 2 * half, rows // 2)
    return _halves(Experts("fp8_fp4", w1, w2, w1_scales, w2_scales))


def transform_weights_for_mega_moe_sm90(l1_weights, l2_weights, activation="swiglu"):
    """Weights of recipe fp8_fp8 for fp8_mega_moe.

    Args:
        l1_weights: (w1, w1_sf): w1 E4M3 (float8_e4m3fn, or its bits as uint8) [E, 2 I, H], gate rows before up rows; w1_sf
            float32 [E, 2 I / 128, H / 128], multipliers per 128 x 128.
        l2_weights: (w2, w2_sf): [E, H, I] and [E, H / 128, I / 128].
    Returns, raises: as transform_weights_for_mega_moe.
    """
    _check_activation(activation)
    w1, w2 = _matrix(l1_weights[0], "l1 weights"), _matrix(l2_weights[0], "l2 weights")
    _check_shapes(w1, w2, 1)
    experts, rows, columns = w1.shape
    if rows // 2 % 128:
        raise InvalidArgumentError(f"I is {rows // 2}: a multiple of 128 is wanted, so that gate and up share no block of scales")
    scales = []
    for array, shape in ((l1_weights[1], (experts, rows // 128, -(-columns // 128))),
                         (l2_weights[1], (experts, -(-columns // 128), rows // 2 // 128))):
        host = on_host(array)
        host = host if host.ndim == 3 else host[None]
        if host.dtype != numpy.float32 or host.shape != shape:
            raise InvalidArgumentError(f"scales are {host.dtype} {list(host.shape)}: float32 {list(shape)} is wanted")
        scales.append(numpy.ascontiguousarray(host))
    return _halves(Experts("fp8_fp8", w1, w2, *scales))


def _check_activation(activation):
    if activation != "swiglu":
        raise InvalidArgumentError(f"activation '{activation}': 'swiglu' is wanted")


def split_shared(experts, count):
    """`count` shared experts that stand side by side in one MLP of `count` times the size, as a stack of them."""
    if experts.count == count:
        return experts
    if experts.count != 1 or experts.intermediate % count:
        raise InvalidArgumentError(f"the shared weights hold {experts.count} experts with I {experts.intermediate}: the buffer has "
                                   f"num_shared_experts = {count}")
    given = experts._arguments()
    w1, w2, w1_scales, w2_scales = (given[name] for name in ("w1", "w2", "w1_scales", "w2_scales"))

    def rows(matrix):  # gate and up of each expert together; the weights of a few experts are copied
        return None if matrix is None else numpy.ascontiguousarray(
            matrix[0].reshape(2, count, -1, matrix.shape[2]).transpose(1, 0, 2, 3)).reshape(count, -1, matrix.shape[2])

    def columns(matrix):
        return None if matrix is None else matrix[0].reshape(matrix.shape[1], count, -1).transpose(1, 0, 2)

    if experts.recipe == "fp8_fp8" and experts.intermediate // count % 128:
        raise InvalidArgumentError(f"a shared expert has I {experts.intermediate // count}: a multiple of 128 is wanted")
    return Experts(experts.recipe, rows(w1), columns(w2), rows(w1_scales), columns(w2_scales))
