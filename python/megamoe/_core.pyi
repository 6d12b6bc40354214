"""The C++ side of megamoe. Use the package megamoe, which documents it."""

from collections.abc import Sequence
from typing import overload


class LayerConfig:
    """
    The shape and arithmetic of one layer, equal on all ranks of a group.

    Attributes (all may be assigned):
        hidden: H, features of a token.
        intermediate: I, features between the two products; W1 is [2I, H], W2 is [H, I].
        experts: E, routed experts over all ranks.
        top_k: K, slots in a token's list, 1 to 32.
        max_tokens: capacity, tokens per rank and call.
        shared_experts: experts that every token of the rank visits with weight 1.
        recipe: "fp8_fp4", "fp8_fp8", "bf16_bf16", "bf16_fp4" or "bf16_fp8": the format of the
            activations, then of W1 and W2.
        activation: "swiglu", or "swiglu_oai" (gpt-oss).
        activation_limit: the clamp of the activation, or None; "swiglu_oai" uses 7 when None.
        shared_weights: "bf16", "fp4" or "fp8", the format of the shared experts' W1 and W2; or None: as
            the recipe's.
    """

    def __init__(self, *, hidden: int, intermediate: int, experts: int, top_k: int, max_tokens: int, shared_experts: int = 0, recipe: str = 'fp8_fp4', activation: str = 'swiglu', activation_limit: float | None = None, shared_weights: str | None = None) -> None: ...

    @property
    def hidden(self) -> int: ...

    @hidden.setter
    def hidden(self, arg: int, /) -> None: ...

    @property
    def intermediate(self) -> int: ...

    @intermediate.setter
    def intermediate(self, arg: int, /) -> None: ...

    @property
    def experts(self) -> int: ...

    @experts.setter
    def experts(self, arg: int, /) -> None: ...

    @property
    def shared_experts(self) -> int: ...

    @shared_experts.setter
    def shared_experts(self, arg: int, /) -> None: ...

    @property
    def top_k(self) -> int: ...

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def max_tokens(self) -> int: ...

    @max_tokens.setter
    def max_tokens(self, arg: int, /) -> None: ...

    @property
    def recipe(self) -> str: ...

    @recipe.setter
    def recipe(self, arg: str, /) -> None: ...

    @property
    def activation(self) -> str: ...

    @activation.setter
    def activation(self, arg: str, /) -> None: ...

    @property
    def activation_limit(self) -> float | None: ...

    @activation_limit.setter
    def activation_limit(self, arg: float | None, /) -> None: ...

    @property
    def shared_weights(self) -> str | None: ...

    @shared_weights.setter
    def shared_weights(self, arg: str | None, /) -> None: ...

    def copy(self) -> LayerConfig: ...

    def __repr__(self) -> str: ...

class CallReport:
    """
    What a call did at this rank.

    Times are wall time of the rank in nanoseconds, busy times are sums over its workers.

    Attributes:
        tokens: tokens of this rank.
        routes: (token, slot) pairs of this rank's tokens that have an expert.
        rows_per_expert: rows that each of this rank's own experts computed, then the shared ones.
        dispatch_ns, compute_ns, barrier_b_ns, combine_ns, total_ns: the phases of the call.
        pull_busy_ns, gemm1_busy_ns, gemm2_busy_ns: what the workers did meanwhile.
        pulled_bytes, pushed_bytes: tokens fetched and results sent, this rank's own included.
        weight_bytes: packed bytes of the experts that had rows.
        flops: 6 * H * I per row.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def routes(self) -> int: ...

    @property
    def rows_per_expert(self) -> list[int]: ...

    @property
    def dispatch_ns(self) -> int: ...

    @property
    def compute_ns(self) -> int: ...

    @property
    def barrier_b_ns(self) -> int: ...

    @property
    def combine_ns(self) -> int: ...

    @property
    def total_ns(self) -> int: ...

    @property
    def pull_busy_ns(self) -> int: ...

    @property
    def gemm1_busy_ns(self) -> int: ...

    @property
    def gemm2_busy_ns(self) -> int: ...

    @property
    def pulled_bytes(self) -> int: ...

    @property
    def pushed_bytes(self) -> int: ...

    @property
    def weight_bytes(self) -> int: ...

    @property
    def flops(self) -> int: ...

    def __repr__(self) -> str: ...

class LayerOptions:
    def __init__(self, *, workers: int | None = None, k1_workers: int | None = None, k2_workers: int | None = None, block_rows: int | None = None, instruction_set: str | None = None) -> None: ...

class Plan:
    """
    What would run on the CPU for a shape, before there is a layer.

    Attributes:
        block_rows: rows of one expert that become ready together (BLOCK_M).
        gemm2_columns: output features of one GEMM-2 task.
        workers: threads of a fused or staged call, and of the combine of a split one.
        k1_workers, k2_workers: threads of the split's two halves.
        arena_bytes: symmetric memory per rank.
        region_bytes: the same by region.
    """

    @property
    def block_rows(self) -> int: ...

    @property
    def gemm2_columns(self) -> int: ...

    @property
    def workers(self) -> int: ...

    @property
    def k1_workers(self) -> int: ...

    @property
    def k2_workers(self) -> int: ...

    @property
    def arena_bytes(self) -> int: ...

    @property
    def region_bytes(self) -> dict[str, int]: ...

    def explain(self) -> str:
        """The plan in words and numbers, some thirty lines."""

    def __repr__(self) -> str: ...

def plan(config: LayerConfig, ranks: int, options: LayerOptions) -> Plan: ...

class SplitPlan:
    @property
    def block_rows(self) -> int: ...

    @property
    def gemm2_tasks_per_block(self) -> int: ...

    @property
    def k2_workers(self) -> int: ...

def plan_split(config: LayerConfig, group: Group, options: LayerOptions, tokens: int) -> SplitPlan: ...

class Group:
    @staticmethod
    def single(deadline: float) -> Group: ...

    @staticmethod
    def threads(ranks: int, deadline: float) -> list[Group]: ...

    @staticmethod
    def processes(rank: int, ranks: int, rendezvous: str, deadline: float, device: int | None) -> Group: ...

    @staticmethod
    def devices(devices: Sequence[int], deadline: float) -> list[Group]: ...

    def duplicate(self) -> Group: ...

    def meet(self, what: str) -> None: ...

    @property
    def device(self) -> int | None: ...

    @property
    def rank(self) -> int: ...

    @property
    def ranks(self) -> int: ...

class Weights:
    def __init__(self) -> None: ...

    def add_routed(self, format: str, w1: object, w2: object, w1_scales: object | None = None, w2_scales: object | None = None, w1_bias: object | None = None, w2_bias: object | None = None, interleaved: bool = False) -> None: ...

    def add_shared(self, format: str, w1: object, w2: object, w1_scales: object | None = None, w2_scales: object | None = None, w1_bias: object | None = None, w2_bias: object | None = None, interleaved: bool = False) -> None: ...

    def add_absent(self, experts: int) -> None: ...

    @property
    def routed(self) -> int: ...

    @property
    def shared(self) -> int: ...

class Batch:
    """
    Views into a layer's memory for the input of one call.

    Fill them, or set `x_bf16`, and pass the batch to Layer.forward. The views are NumPy arrays on the
    CPU; formats that NumPy lacks show as unsigned integers of their width.

    Attributes:
        tokens: T.
        x: [T, H], uint16 (bf16) or uint8 (E4M3), as the layer's recipe says.
        x_scales: uint8 UE8M0 [T, ceil(H / 32)], float32 [T, ceil(H / 128)], or None for bf16.
        experts: int64 [T, top_k]; negative: no route.
        weights: float32 [T, top_k].
        x_bf16: None, or the caller's bf16 x [T, H] to use instead of x and x_scales; not copied.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def x(self) -> object: ...

    @property
    def x_scales(self) -> object: ...

    @property
    def experts(self) -> object: ...

    @property
    def weights(self) -> object: ...

class Graph:
    def replay(self, tokens: int, stream: int | None) -> None: ...

class Layer:
    @overload
    def __init__(self, arg0: LayerConfig, arg1: Weights, arg2: Group, arg3: LayerOptions, /) -> None: ...

    @overload
    def __init__(self, arg0: LayerConfig, arg1: CheckpointLayer, arg2: Group, arg3: LayerOptions, /) -> None: ...

    @overload
    def __init__(self, arg0: LayerConfig, arg1: str, arg2: Group, arg3: LayerOptions, /) -> None: ...

    @overload
    def __init__(self, arg0: LayerConfig, arg1: PackedExperts, arg2: Group, arg3: LayerOptions, /) -> None: ...

    def batch(self, tokens: int, group: Group) -> Batch: ...

    def forward(self, batch: Batch, y: object, execution: str, stream: int | None = None) -> None: ...

    def wait(self) -> None: ...

    def poll(self) -> bool: ...

    def run(self, x: object, experts: object, weights: object, y: object, execution: str) -> None: ...

    def graph(self, y: object, execution: str, group: Group) -> Graph: ...

    @overload
    def refresh(self, arg: Weights, /) -> None: ...

    @overload
    def refresh(self, arg: CheckpointLayer, /) -> None: ...

    def save_packed(self, file: str) -> None: ...

    @property
    def packed_experts(self) -> PackedExperts: ...

    def explain(self) -> str: ...

    @property
    def config(self) -> LayerConfig: ...

    @property
    def report(self) -> CallReport: ...

class PackedExperts:
    """
    A rank's packed experts, as layers share them.

    Of Layer.packed_experts; a Layer takes them as its weights, without a copy. The memory lives as long
    as this object or a layer that was made with it.
    """

class RouterConfig:
    """
    What a router does: hidden states to top-k experts and weights.

        logits = weight * x + bias; scores = f(logits); chosen are the top_k of scores + selection_bias,
        inside the best groups if there are several; weights are the unbiased scores of the chosen,
        renormalised if asked, times scaling.

    A group's rank is the sum of its two best scores. Ties go to the lower id; a NaN score ranks below
    every number.

    Arguments (all by name; arrays of any float type and framework, which are copied):
        weight: [experts, hidden].
        top_k: experts per token.
        bias: [experts] or None, added to the logits.
        selection_bias: [experts] or None, added to the scores for the choice alone.
        scores: "softmax" (Mixtral, Qwen3, gpt-oss), "sigmoid" (DeepSeek-V3) or "sqrt_softplus"
            (DeepSeek-V4).
        renormalise: weights of a token sum to 1 before scaling.
        scaling: factor of the weights.
        groups, top_groups: groups of experts, and how many of them stay.
    """

    def __init__(self, *, weight: object, top_k: int, bias: object | None = None, selection_bias: object | None = None, scores: str = 'softmax', renormalise: bool = True, scaling: float = 1.0, groups: int = 1, top_groups: int = 1) -> None: ...

    @property
    def experts(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def top_k(self) -> int: ...

    @property
    def scores(self) -> str: ...

    @property
    def renormalise(self) -> bool: ...

    @property
    def scaling(self) -> float: ...

    @property
    def groups(self) -> int: ...

    @property
    def top_groups(self) -> int: ...

    def __repr__(self) -> str: ...

def route(router: RouterConfig, x: object, experts: object, weights: object) -> None: ...

class CheckpointLayer:
    """
    One layer of a checkpoint folder.

    Pass it as the weights of a Layer. Its weights are views into the mapped files.

    Attributes:
        family: "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3" or "deepseek_v4".
        config: a LayerConfig, max_tokens as load_layer was asked; assign another to change it.
        router: the layer's own RouterConfig.
        note: what could not be kept as it is stored, in words; "" if all was.
    """

    @property
    def family(self) -> str: ...

    @property
    def config(self) -> LayerConfig: ...

    @config.setter
    def config(self, arg: LayerConfig, /) -> None: ...

    @property
    def router(self) -> RouterConfig: ...

    @property
    def note(self) -> str: ...

    def __repr__(self) -> str: ...

def load_layer(directory: str, layer: int) -> CheckpointLayer: ...

def cast_rows(x: object, format: str, group: int, power_of_two: bool, values: object, scales: object) -> None: ...

def cast_blocks_to_fp8(x: object, group: int, power_of_two: bool, values: object, scales: object) -> None: ...

def round_to_bf16(x: object, out: object) -> None: ...

def convert_x(recipe: str, x: object, values: object, scales: object) -> None: ...

def x_row_bytes(arg0: str, arg1: int, /) -> int: ...

def x_scale_row_bytes(arg0: str, arg1: int, /) -> int: ...

def choose_block_rows(expected_rows: int) -> int: ...

capacity_step: int = 384

class SymmetricBuffer:
    def __init__(self, config: LayerConfig, group: Group) -> None: ...

    @property
    def capacity(self) -> int: ...

    @property
    def local_experts(self) -> int: ...

    @property
    def data(self) -> object: ...

    @property
    def data_pointers(self) -> list[int]: ...

    @property
    def x(self) -> object: ...

    @property
    def x_scales(self) -> object: ...

    @property
    def experts(self) -> object: ...

    @property
    def weights(self) -> object: ...

    @property
    def gemm1_input(self) -> object: ...

    @property
    def gemm1_input_scales(self) -> object: ...

    @property
    def gemm2_input(self) -> object: ...

    @property
    def gemm2_input_scales(self) -> object: ...

def mqa_logits(q: object, kv: object, kv_scale: object, weights: object, ks: object, ke: object, logits: object, clean: bool, stream: int, workers: int | None) -> None: ...

def paged_mqa_logits(q: object, next_n: int, kv_cache: object, weights: object, context_lens: object, block_table: object, logits: object, clean: bool, stream: int, workers: int | None) -> None: ...
