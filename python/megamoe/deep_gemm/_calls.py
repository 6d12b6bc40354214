"""The calls."""
from .._errors import InvalidArgumentError
from ._buffers import SymmBuffer
from ._frameworks import add_in_place, check_int32
from ._weights import experts_of


def _layer_of(buffer, recipe, l1_weights, l2_weights, shared_l1_weights, shared_l2_weights, activation, clamp, options=()):
    if not isinstance(buffer, SymmBuffer):
        raise InvalidArgumentError(f"sym_buffer is a {type(buffer).__name__}: what get_symm_buffer_for_mega_moe returned is wanted")
    if activation != "swiglu":
        raise InvalidArgumentError(f"activation '{activation}': 'swiglu' is wanted")
    if buffer._config.recipe != recipe:
        raise InvalidArgumentError(f"the buffer is of recipe {buffer._config.recipe}, the call runs {recipe}: make the buffer with the "
                                   f"function or the mma_type of the call")
    experts = experts_of(l1_weights, l2_weights, recipe)
    shared = None
    if (shared_l1_weights is None) != (shared_l2_weights is None):
        raise InvalidArgumentError("one of shared_l1_weights and shared_l2_weights is missing")
    if shared_l1_weights is not None:
        shared = experts_of(shared_l1_weights, shared_l2_weights, recipe)
    return buffer._layer(experts, shared, None if clamp is None else float(clamp), options)


def _forward(layer, y, execution):
    """Runs the layer on the first rows of its buffer, as many as y has."""
    layer.forward(layer.batch(y.shape[0]), y, execution=execution)


def _check_recipe(recipe, wanted):
    if tuple(recipe) != wanted:
        raise InvalidArgumentError(f"recipe is {tuple(recipe)}: {wanted} is wanted")


def _check_stats(stats, buffer):
    return None if stats is None else check_int32(stats, "cumulative_local_expert_recv_stats", buffer._core.local_experts)


def _run(y, recipe, buffer, stats, halves, activation, clamp):
    layer = _layer_of(buffer, recipe, *halves, activation, clamp)
    _check_stats(stats, buffer)
    _forward(layer, y, "fused")
    if stats is not None:
        layer.wait()  # on a device: until the counts are there
        add_in_place(stats, layer.report.rows_per_expert[:buffer._core.local_experts])


def fp8_fp4_mega_moe(y, l1_weights, l2_weights, sym_buffer, shared_l1_weights=None, shared_l2_weights=None,
                     cumulative_local_expert_recv_stats=None, recipe=(1, 1, 32), activation="swiglu",
                     activation_clamp=None, fast_math=True):
    """y[t] = sum over slots of topk_weights[t, s] * expert topk_idx[t, s] of x[t], then the shared experts. Collective.

    Args:
        y: bf16 [T, H] to write; T tokens of sym_buffer's views are read. T may differ per rank, and may be 0.
        l1_weights, l2_weights: of transform_weights_for_mega_moe. The first call with them packs them; later calls, also with
            other buffers, find them packed. Beside one set of shared experts, for one rank and device.
        sym_buffer: of get_symm_buffer_for_mega_moe.
        shared_l1_weights, shared_l2_weights: of transform_weights_for_mega_moe too, of the same recipe: num_shared_experts
            experts side by side in one MLP, or stacked.
        cumulative_local_expert_recv_stats: int32 [local experts], to which the rows of each are added; or None. On a device
            the call then waits for y; without, it is enqueued on PyTorch's current stream.
        recipe: (1, 1, 32).
        activation_clamp: c of gate = min(gate, c), up = clamp(up, -c, c); or None.
        fast_math: allows approximate functions. The CPU has none, and its results do not depend on this.
    Raises:
        InvalidArgumentError for arrays that do not fit, and for an id beyond the experts: then the call has completed, and y
        of that token is NaN. MismatchError, DeadlineError, PeerLostError as megamoe.Layer.
    """
    _check_recipe(recipe, (1, 1, 32))
    _run(y, "fp8_fp4", sym_buffer, cumulative_local_expert_recv_stats,
         (l1_weights, l2_weights, shared_l1_weights, shared_l2_weights), activation, activation_clamp)


def fp8_mega_moe(y, l1_weights, l2_weights, sym_buffer, shared_l1_weights=None, shared_l2_weights=None,
                 cumulative_local_expert_recv_stats=None, recipe=(128, 128, 128), activation="swiglu",
                 activation_clamp=None, fast_math=True):
    """fp8_fp4_mega_moe with E4M3 weights: of transform_weights_for_mega_moe_sm90, get_symm_buffer_for_sm90_mega_moe and recipe
    (128, 128, 128)."""
    _check_recipe(recipe, (128, 128, 128))
    _run(y, "fp8_fp8", sym_buffer, cumulative_local_expert_recv_stats,
         (l1_weights, l2_weights, shared_l1_weights, shared_l2_weights), activation, activation_clamp)


def bf16_mega_moe(y, l1_weights, l2_weights, sym_buffer, shared_l1_weights=None, shared_l2_weights=None,
                  cumulative_local_expert_recv_stats=None, activation="swiglu", activation_clamp=None, fast_math=True):
    """fp8_fp4_mega_moe with bf16 x and weights: the buffer has mma_type "bf16xbf16"."""
    _run(y, "bf16_bf16", sym_buffer, cumulative_local_expert_recv_stats,
         (l1_weights, l2_weights, shared_l1_weights, shared_l2_weights), activation, activation_clamp)
