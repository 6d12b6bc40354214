"""The names of DeepGEMM's interface that mega MoE has, so that callers of it run with

    import megamoe.deep_gemm as deep_gemm

Arrays are PyTorch's, or NumPy's with fp8 and fp4 as uint8 and bf16 as uint16. On the CPU, calls return when y is complete.

    buffer = deep_gemm.get_symm_buffer_for_mega_moe(group, num_experts, max_tokens, top_k, hidden, intermediate)
    l1, l2 = deep_gemm.transform_weights_for_mega_moe((w1, w1_sf), (w2, w2_sf))
    buffer.x[:tokens], buffer.x_sf[:tokens] = x, x_sf
    buffer.topk_idx[:tokens], buffer.topk_weights[:tokens] = experts, weights
    deep_gemm.fp8_fp4_mega_moe(y, l1, l2, buffer)

An option that is not known, or would do nothing, is an error.
"""
from . import testing, utils
from ._buffers import (
    SymmBuffer,
    get_symm_buffer_for_mega_moe,
    get_symm_buffer_for_mega_moe_split,
    get_symm_buffer_for_sm90_mega_moe,
)
from ._calls import bf16_mega_moe, fp8_fp4_mega_moe, fp8_mega_moe
from ._casts import (
    calc_diff,
    get_block_m_for_mega_moe,
    get_token_alignment_for_mega_moe,
    per_block_cast_to_fp8,
    per_token_cast_to_fp4,
    per_token_cast_to_fp8,
    transform_sf_into_required_layout,
)
from ._mqa import fp8_fp4_mqa_logits, fp8_mqa_logits, fp8_paged_mqa_logits, get_paged_mqa_logits_metadata
from ._split import MegaMoESplitGraph, SM100FP8FP4MegaMoESplitGraph
from ._weights import transform_weights_for_mega_moe, transform_weights_for_mega_moe_sm90

__all__ = [
    "MegaMoESplitGraph", "SM100FP8FP4MegaMoESplitGraph", "SymmBuffer", "bf16_mega_moe", "calc_diff", "fp8_fp4_mega_moe",
    "fp8_fp4_mqa_logits", "fp8_mega_moe", "fp8_mqa_logits", "fp8_paged_mqa_logits", "get_block_m_for_mega_moe",
    "get_paged_mqa_logits_metadata", "get_symm_buffer_for_mega_moe", "get_symm_buffer_for_mega_moe_split",
    "get_symm_buffer_for_sm90_mega_moe", "get_token_alignment_for_mega_moe", "per_block_cast_to_fp8",
    "per_token_cast_to_fp4", "per_token_cast_to_fp8", "testing", "transform_sf_into_required_layout",
    "transform_weights_for_mega_moe", "transform_weights_for_mega_moe_sm90", "utils",
]
