import types
from collections.abc import Sequence
from typing import Any

from . import testing as testing
from . import utils as utils

# A tensor of PyTorch or an array of NumPy.
Array = Any

class MegaMoeWeights: ...

class SymmBuffer:
    group: Any
    num_experts: int
    num_max_tokens_per_rank: int
    num_topk: int
    hidden: int
    intermediate_hidden: int
    num_shared_experts: int
    buffer: Array
    handle: types.SimpleNamespace
    x: Array
    x_sf: Array | None
    topk_idx: Array
    topk_weights: Array
    l1_acts: Array
    l1_acts_sf: Array | None
    l2_acts: Array
    l2_acts_sf: Array | None
    def destroy(self) -> None: ...

def get_symm_buffer_for_mega_moe(
    group: Any, num_experts: int, num_max_tokens_per_rank: int, num_topk: int, hidden: int, intermediate_hidden: int,
    num_shared_experts: int = 0, use_fp8_dispatch: bool | None = None, mma_type: str = "fp8xfp4", activation: str = "swiglu",
    *, framework: str | None = None, device: int | None = None,
) -> SymmBuffer: ...
def get_symm_buffer_for_mega_moe_split(
    group: Any, num_experts: int, num_max_tokens_per_rank: int, num_topk: int, hidden: int, intermediate_hidden: int,
    num_shared_experts: int = 0, use_fp8_dispatch: bool | None = None, mma_type: str = "fp8xfp4", activation: str = "swiglu",
    *, framework: str | None = None, device: int | None = None,
) -> SymmBuffer: ...
def get_symm_buffer_for_sm90_mega_moe(
    group: Any, num_experts: int, num_max_tokens_per_rank: int, num_topk: int, hidden: int, intermediate_hidden: int,
    use_fp8_dispatch: bool = True, activation: str = "swiglu", num_shared_experts: int = 0, *, framework: str | None = None,
    device: int | None = None,
) -> SymmBuffer: ...
def transform_weights_for_mega_moe(
    l1_weights: Any, l2_weights: Any, activation: str = "swiglu",
) -> tuple[MegaMoeWeights, MegaMoeWeights]: ...
def transform_weights_for_mega_moe_sm90(
    l1_weights: Any, l2_weights: Any, activation: str = "swiglu",
) -> tuple[MegaMoeWeights, MegaMoeWeights]: ...
def fp8_fp4_mega_moe(
    y: Array, l1_weights: MegaMoeWeights, l2_weights: MegaMoeWeights, sym_buffer: SymmBuffer,
    shared_l1_weights: MegaMoeWeights | None = None, shared_l2_weights: MegaMoeWeights | None = None,
    cumulative_local_expert_recv_stats: Array | None = None, recipe: tuple[int, int, int] = (1, 1, 32),
    activation: str = "swiglu", activation_clamp: float | None = None, fast_math: bool = True,
) -> None: ...
def fp8_mega_moe(
    y: Array, l1_weights: MegaMoeWeights, l2_weights: MegaMoeWeights, sym_buffer: SymmBuffer,
    shared_l1_weights: MegaMoeWeights | None = None, shared_l2_weights: MegaMoeWeights | None = None,
    cumulative_local_expert_recv_stats: Array | None = None, recipe: tuple[int, int, int] = (128, 128, 128),
    activation: str = "swiglu", activation_clamp: float | None = None, fast_math: bool = True,
) -> None: ...
def bf16_mega_moe(
    y: Array, l1_weights: MegaMoeWeights, l2_weights: MegaMoeWeights, sym_buffer: SymmBuffer,
    shared_l1_weights: MegaMoeWeights | None = None, shared_l2_weights: MegaMoeWeights | None = None,
    cumulative_local_expert_recv_stats: Array | None = None, activation: str = "swiglu",
    activation_clamp: float | None = None, fast_math: bool = True,
) -> None: ...

class MegaMoESplitGraph:
    def __init__(
        self, states: Sequence[Array], ys: Sequence[Array], sym_buffers: Sequence[SymmBuffer],
        l1_weights: Sequence[MegaMoeWeights], l2_weights: Sequence[MegaMoeWeights],
        cumulative_local_expert_recv_stats: Sequence[Array | None] | None = None, num_tokens: int | None = None,
        activation_clamp: float | None = None, fast_math: bool = True, kernel1_sms: int | None = None,
        kernel2_sms: int | None = None, reduce_sms: int | None = None, kernel2_work_iters: int = 0, reduce_work_iters: int = 0,
    ) -> None: ...
    def replay(self, num_tokens: int | None = None) -> None: ...
    def get_green_context_ids(self) -> list[int]: ...

SM100FP8FP4MegaMoESplitGraph = MegaMoESplitGraph

def fp8_mqa_logits(
    q: Array, kv: tuple[Array, Array], weights: Array, ks: Array, ke: Array, clean_logits: bool = True, *,
    logits_dtype: Any = None, workers: int | None = None,
) -> Array: ...

fp8_fp4_mqa_logits = fp8_mqa_logits

def fp8_paged_mqa_logits(
    q: Array, kv_cache: Array, weights: Array, context_lens: Array, block_table: Array, schedule_metadata: None = None,
    max_context_len: int | None = None, clean_logits: bool = False, *, logits_dtype: Any = None, workers: int | None = None,
) -> Array: ...
def get_paged_mqa_logits_metadata(context_lens: Array, block_kv: int, num_sms: int) -> None: ...
def per_token_cast_to_fp8(
    x: Array, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False,
) -> tuple[Array, Array]: ...
def per_token_cast_to_fp4(
    x: Array, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False,
) -> tuple[Array, Array]: ...
def per_block_cast_to_fp8(x: Array, use_ue8m0: bool, gran_k: int = 128) -> tuple[Array, Array]: ...
def transform_sf_into_required_layout(
    sf: Array, mn: int, k: int, recipe: tuple[int, ...], num_groups: int | None = None,
) -> Array: ...
def calc_diff(x: Array, y: Array) -> float: ...
def get_token_alignment_for_mega_moe() -> int: ...
def get_block_m_for_mega_moe(
    num_ranks: int, num_experts: int, num_max_tokens_per_rank: int, num_tokens: int, num_topk: int, mma_type: str = "fp8xfp4",
) -> int: ...
