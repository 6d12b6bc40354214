"""FP8 MQA logits."""
import sys

import numpy

from .. import _core
from .._arrays import current_stream, empty_bfloat16, exportable, is_torch
from .._errors import InvalidArgumentError, UnsupportedError


def _new_logits(shape, like, dtype):
    name = "float32" if dtype is None else str(dtype).rsplit(".", maxsplit=1)[-1].removesuffix("'>")
    if name == "bfloat16":
        return empty_bfloat16(shape, like=like)
    if name != "float32":
        raise UnsupportedError(f"logits of {name}: float32 or bfloat16 is wanted")
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=torch.float32, device=like.device)
    return numpy.empty(shape, dtype=numpy.float32)


def _stream_of(q):
    return current_stream(q) or 0


def _fp8_only(value, what):
    if isinstance(value, (tuple, list)):
        raise UnsupportedError(f"{what} comes with scales, as FP4 does: E4M3 without is wanted, FP4 is not run")
    return value


def fp8_mqa_logits(q, kv, weights, ks, ke, clean_logits=True, *, logits_dtype=None, workers=None):
    """logits[i, j] = kv_scale[j] * sum over heads h of weights[i, h] * max(q[i, h] . kv[j], 0), for ks[i] <= j < ke[i].

    Args:
        q: E4M3 [S, heads, D] (float8_e4m3fn, or its bits as uint8); heads 1 to 64; D 32, 64 or 128.
        kv: (kv, kv_scale): E4M3 [Skv, D] and float32 [Skv].
        weights: float32 or float16 [S, heads].
        ks, ke: int32 [S]; outside 0 to Skv they count as the nearest end, and ke <= ks is an empty row.
        clean_logits: -inf outside the range; else what is there is undefined.
        logits_dtype: float32 (None) or bfloat16.
        workers: threads, on the CPU; None: all processors.
    Returns:
        [S, Skv] in q's framework, on its device; there it is enqueued on PyTorch's current stream.
    Raises:
        InvalidArgumentError for arrays that do not fit, UnsupportedError for FP4.
    """
    q = _fp8_only(q, "q")
    if not isinstance(kv, (tuple, list)) or len(kv) != 2:
        raise InvalidArgumentError("kv is no pair: (kv, kv_scale) is wanted")
    logits = _new_logits((q.shape[0], kv[0].shape[0]), q, logits_dtype)
    _core.mqa_logits(exportable(q), exportable(kv[0]), exportable(kv[1]), exportable(weights), exportable(ks), exportable(ke),
                     exportable(logits), bool(clean_logits), _stream_of(q), workers)
    return logits


fp8_fp4_mqa_logits = fp8_mqa_logits


def fp8_paged_mqa_logits(q, kv_cache, weights, context_lens, block_table, schedule_metadata=None, max_context_len=None,
                         clean_logits=False, *, logits_dtype=None, workers=None):
    """fp8_mqa_logits with keys in blocks of 64, found through a table.

    Args:
        q: E4M3 [B, next_n, heads, D].
        kv_cache: uint8 [blocks, 64, 1, D + 4]: each block stores its 64 x D values first and its 64 float32 scales after.
        weights: float32 or float16 [B * next_n, heads].
        context_lens: int32 [B], keys of each sequence with its new tokens (new token n sees those before it and itself); or
            [B, next_n], each row's own.
        block_table: int32 [B, max_blocks].
        schedule_metadata: None; megamoe needs none, and what get_paged_mqa_logits_metadata returns is None.
        max_context_len: columns of the result, at most 64 * max_blocks; None: that many.
        clean_logits, logits_dtype, workers: as fp8_mqa_logits.
    Returns:
        [B * next_n, max_context_len].
    """
    q = _fp8_only(q, "q")
    if schedule_metadata is not None:
        raise UnsupportedError("schedule_metadata is not None: megamoe's paged MQA logits need none")
    if len(q.shape) != 4 or len(kv_cache.shape) != 4 or tuple(kv_cache.shape[1:]) != (64, 1, q.shape[3] + 4):
        raise InvalidArgumentError(f"q is {list(q.shape)} and kv_cache {list(kv_cache.shape)}: [B, next_n, heads, D] and [blocks, 64, 1, "
                                   f"D + 4] are wanted")
    sequences, next_n, heads, dim = q.shape
    columns = 64 * block_table.shape[1] if max_context_len is None else max_context_len
    logits = _new_logits((sequences * next_n, columns), q, logits_dtype)
    _core.paged_mqa_logits(exportable(q).reshape(sequences * next_n, heads, dim), next_n,
                           exportable(kv_cache).reshape(kv_cache.shape[0], -1), exportable(weights), exportable(context_lens),
                           exportable(block_table), exportable(logits), bool(clean_logits), _stream_of(q), workers)
    return logits


def get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms):
    """None: megamoe's paged MQA logits need no schedule. block_kv must be 64."""
    if block_kv != 64:
        raise UnsupportedError(f"block_kv is {block_kv}: 64 is wanted")
    return None
