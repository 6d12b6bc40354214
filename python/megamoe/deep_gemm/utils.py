"""Helpers under the names that callers import from DeepGEMM's utils."""
from ._casts import align, ceil_div, per_block_cast_to_fp8, per_token_cast_to_fp4, per_token_cast_to_fp8

__all__ = ["align", "ceil_div", "per_block_cast_to_fp8", "per_token_cast_to_fp4", "per_token_cast_to_fp8"]
