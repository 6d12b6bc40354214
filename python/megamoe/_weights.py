"""Weights of a layer as arrays."""
from . import _core
from ._arrays import contiguous_float32, exportable
from ._errors import InvalidArgumentError


class Weights:
    """The experts of a layer as views into the caller's arrays. Nothing is copied until a Layer packs its own experts;
    the arrays are kept alive as long as this object, and may go once the Layer is made.

    Args:
        w1: [experts, 2 * I, H], gate rows, then up rows (or alternating, see `interleaved`).
        w2: [experts, H, I].
        format: "bf16": elements are bfloat16.
            "fp4": two E2M1 per byte along the last axis, which has half the length, the even column in the low half.
            "fp8": E4M3, one byte each.
            NumPy, PyTorch, or anything with DLPack in host memory; rows may lie any distance apart. Formats that an array
            library lacks come as uint8 and uint16.
        w1_scales, w2_scales: "fp4": UE8M0 bytes per row and 32 columns, [experts, 2 * I, H / 32] and [experts, H, I / 32].
            "fp8": float32 multipliers per 128 x 128, [experts, 2 * ceil(I / 128), ceil(H / 128)] (gate's blocks, then
            up's) and [experts, ceil(H / 128), ceil(I / 128)].
        w1_bias, w2_bias: [experts, 2 * I] and [experts, H], any float type, or None.
        interleaved: rows of w1 alternate gate, up (gpt-oss); not with "fp8".
        first_expert, experts: where the arrays hold only some experts, as those of one rank: the id of the first, and how
            many the layer has. A rank reads only its own: expert e belongs to rank e // ceil(experts / ranks).

    Raises:
        InvalidArgumentError that names the array and what was wanted.
    """

    __slots__ = ("_core",)

    def __init__(self, w1, w2, *, format="bf16", w1_scales=None, w2_scales=None, w1_bias=None, w2_bias=None,
                 interleaved=False, first_expert=0, experts=None):
        self._core = _core.Weights()
        self._core.add_absent(first_expert)
        self._core.add_routed(**_stack(format, w1, w2, w1_scales, w2_scales, w1_bias, w2_bias, interleaved))
        if experts is not None:
            if experts < self._core.routed:
                raise InvalidArgumentError(
                    f"the arrays hold experts {first_expert} to {self._core.routed - 1}, but the layer has {experts}")
            self._core.add_absent(experts - self._core.routed)

    def add_shared(self, w1, w2, *, format="bf16", w1_scales=None, w2_scales=None, w1_bias=None, w2_bias=None,
                   interleaved=False):
        """Adds shared experts, which every token visits with weight 1: arrays as those of the constructor."""
        self._core.add_shared(**_stack(format, w1, w2, w1_scales, w2_scales, w1_bias, w2_bias, interleaved))
        return self


def _stack(format, w1, w2, w1_scales, w2_scales, w1_bias, w2_bias, interleaved):
    return {
        "format": format,
        "w1": exportable(w1),
        "w2": exportable(w2),
        "w1_scales": exportable(w1_scales),
        "w2_scales": exportable(w2_scales),
        "w1_bias": contiguous_float32(w1_bias, "w1_bias"),
        "w2_bias": contiguous_float32(w2_bias, "w2_bias"),
        "interleaved": interleaved,
    }
