"""Conversions that callers of DeepGEMM use around its kernels, with megamoe's own roundings."""
import numpy

from .. import _core
from .._arrays import is_torch
from .._errors import InvalidArgumentError, UnsupportedError
from ._frameworks import like, on_host


def ceil_div(x, y):
    """x / y, rounded up."""
    return -(-x // y)


def align(x, y):
    """The least multiple of y that is not below x."""
    return ceil_div(x, y) * y


def _scales(x, scales, use_packed_ue8m0):
    return like(x, _packed(scales) if use_packed_ue8m0 else scales, "plain")


def _packed(scales):
    """float32 powers of two [..., groups] as UE8M0 bytes, four in an int32: [..., groups / 4]."""
    if scales.shape[-1] % 4:
        raise InvalidArgumentError(f"{scales.shape[-1]} groups per row: a multiple of 4 is wanted to pack four scales in a word")
    bits = numpy.ascontiguousarray(scales).view(numpy.uint32)
    if (bits & 0x807FFFFF).any():
        raise InvalidArgumentError("a scale is no power of two from 2^-126 to 2^127: cast with use_ue8m0=True")
    return (bits >> 23).astype(numpy.uint8).view(numpy.int32)


def _cast(x, format, group, power_of_two):
    rows = numpy.ascontiguousarray(on_host(x))
    if rows.ndim != 2:
        raise InvalidArgumentError(f"x is {list(rows.shape)}: [rows, columns] are wanted")
    per_byte = 2 if format == "fp4" else 1
    values = numpy.empty((rows.shape[0], rows.shape[1] // per_byte), dtype=numpy.uint8)
    scales = numpy.empty((rows.shape[0], ceil_div(rows.shape[1], group)), dtype=numpy.float32)
    _core.cast_rows(rows, format, group, power_of_two, values, scales)
    return values, scales


def per_token_cast_to_fp8(x, use_ue8m0, gran_k=128, use_packed_ue8m0=False):
    """Rows to E4M3 with one scale per gran_k columns.

    Args:
        x: [rows, columns] of float32, float16 or bfloat16 (or its bits as uint16), NumPy or PyTorch. A tensor on a device
            is converted on the host and brought back.
        use_ue8m0: scales are powers of two, rounded up; else amax / 448.
        use_packed_ue8m0: scales as four UE8M0 bytes in an int32; columns / gran_k must be a multiple of 4.
    Returns:
        (values, scales): values uint8 (NumPy) or float8_e4m3fn (PyTorch) [rows, columns]; scales float32
        [rows, ceil(columns / gran_k)], or int32 with a quarter of the columns.
    """
    if use_packed_ue8m0 and not use_ue8m0:
        raise InvalidArgumentError("use_packed_ue8m0 needs use_ue8m0")
    values, scales = _cast(x, "fp8", gran_k, bool(use_ue8m0))
    return like(x, values, "fp8"), _scales(x, scales, use_packed_ue8m0)


def per_token_cast_to_fp4(x, use_ue8m0, gran_k=128, use_packed_ue8m0=False):
    """Rows to E2M1, two per byte, the even column in the low half, with one scale per gran_k columns.

    Arguments as per_token_cast_to_fp8; scales are amax / 6, or the next power of two. A half between two values goes to
    the even one. A NaN or an infinity in x is an error: E2M1 has neither.
    Returns:
        (values, scales): values uint8 (NumPy) or int8 (PyTorch) [rows, columns / 2].
    """
    if use_packed_ue8m0 and not use_ue8m0:
        raise InvalidArgumentError("use_packed_ue8m0 needs use_ue8m0")
    values, scales = _cast(x, "fp4", gran_k, bool(use_ue8m0))
    return like(x, values, "fp4"), _scales(x, scales, use_packed_ue8m0)


def per_block_cast_to_fp8(x, use_ue8m0, gran_k=128):
    """A matrix to E4M3 with one float32 scale per gran_k rows and gran_k columns: (values, scales), as
    per_token_cast_to_fp8, scales [ceil(rows / gran_k), ceil(columns / gran_k)]."""
    rows = numpy.ascontiguousarray(on_host(x))
    if rows.ndim != 2:
        raise InvalidArgumentError(f"x is {list(rows.shape)}: [rows, columns] are wanted")
    values = numpy.empty(rows.shape, dtype=numpy.uint8)
    scales = numpy.empty((ceil_div(rows.shape[0], gran_k), ceil_div(rows.shape[1], gran_k)), dtype=numpy.float32)
    _core.cast_blocks_to_fp8(rows, gran_k, bool(use_ue8m0), values, scales)
    return like(x, values, "fp8"), like(x, scales, "plain")


def transform_sf_into_required_layout(sf, mn, k, recipe, num_groups=None):
    """float32 scales per row and 32 columns, powers of two, as transform_weights_for_mega_moe takes them: four UE8M0 bytes
    in an int32.

    Args:
        sf: float32 [num_groups, mn, k / 32], or [mn, k / 32] without num_groups.
        recipe: (1, 32) or (1, 1, 32); others are not used by mega MoE.
    Returns:
        int32 with a quarter of the columns.
    """
    if tuple(recipe)[-2:] != (1, 32):
        raise UnsupportedError(f"recipe {tuple(recipe)}: only scales per row and 32 columns, (1, 32), are packed")
    wanted = ((num_groups,) if num_groups is not None else ()) + (mn, ceil_div(k, 32))
    scales = on_host(sf)
    if scales.shape != wanted or scales.dtype != numpy.float32:
        raise InvalidArgumentError(f"sf is {scales.dtype} {list(scales.shape)}: float32 {list(wanted)} is wanted")
    return like(sf, _packed(scales), "plain")


def calc_diff(x, y):
    """1 - 2 <x, y> / (<x, x> + <y, y>) in float64: 0 for equal arrays, and for two of zeros."""
    a = _float64(x)
    b = _float64(y)
    denominator = float((a * a).sum() + (b * b).sum())
    return 1 - 2 * float((a * b).sum()) / denominator if denominator else 0.0


def _float64(array):
    if is_torch(array):
        return array.detach().double().cpu().numpy()
    array = numpy.asarray(array)
    if array.dtype == numpy.uint16:
        from .._arrays import to_float32

        array = to_float32(array)
    return array.astype(numpy.float64)


def get_token_alignment_for_mega_moe():
    """What num_max_tokens_per_rank is rounded up to."""
    return _core.capacity_step


def get_block_m_for_mega_moe(num_ranks, num_experts, num_max_tokens_per_rank, num_tokens, num_topk, mma_type="fp8xfp4"):
    """Rows of one expert that become ready together, for num_tokens tokens per rank. Results do not depend on it."""
    if num_tokens > num_max_tokens_per_rank:
        raise InvalidArgumentError(f"num_tokens is {num_tokens}: at most num_max_tokens_per_rank, {num_max_tokens_per_rank}, is wanted")
    recipe_of_mma_type(mma_type)
    return _core.choose_block_rows(ceil_div(num_tokens * num_ranks * num_topk, num_experts))


_RECIPES = {"fp8xfp4": "fp8_fp4", "bf16xbf16": "bf16_bf16"}


def recipe_of_mma_type(mma_type):
    if mma_type not in _RECIPES:
        raise UnsupportedError(f"mma_type '{mma_type}': {' or '.join(_RECIPES)} is wanted (E4M3 weights with 128 x 128 scales: "
                               f"get_symm_buffer_for_sm90_mega_moe)")
    return _RECIPES[mma_type]
