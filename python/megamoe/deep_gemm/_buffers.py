"""Symmetric buffers: where the tokens of a call stand, before there is a layer."""
import os
import time
import types
import warnings
import weakref

from .. import _core
from .._errors import InvalidArgumentError, UnsupportedError
from .._group import Group
from ._casts import align, get_token_alignment_for_mega_moe, recipe_of_mma_type
from ._frameworks import named

_VIEWS = ("x", "x_sf", "topk_idx", "topk_weights", "l1_acts", "l1_acts_sf", "l2_acts", "l2_acts_sf")


class SymmBuffer:
    """The input of a call and its working memory, at every rank of a group. Made by get_symm_buffer_for_mega_moe.

    Attributes:
        group: as given.
        num_experts, num_topk, hidden, intermediate_hidden, num_shared_experts: as given.
        num_max_tokens_per_rank: rounded up to get_token_alignment_for_mega_moe().
        x: [cap, H] fp8 (uint8 in NumPy), or bf16.
        x_sf: int32 [cap, H / 128], four UE8M0 bytes of neighbouring groups of 32 each; float32 [cap, H / 128] for
            get_symm_buffer_for_sm90_mega_moe; None for bf16.
        topk_idx: int64 [cap, K]; negative: no route.
        topk_weights: float32 [cap, K].
        l1_acts, l1_acts_sf, l2_acts, l2_acts_sf: rows of the pool that the two products read; for looking at.
        buffer: int8, this rank's part of the symmetric memory. It may be filled with anything between calls: what the calls
            keep from one to the next lies elsewhere.
        handle.buffer_ptrs: addresses of every rank's part in this process.
    """

    def __init__(self, group, config, framework, device):
        self.group = group
        self.num_experts = config.experts
        self.num_max_tokens_per_rank = config.max_tokens
        self.num_topk = config.top_k
        self.hidden = config.hidden
        self.intermediate_hidden = config.intermediate
        self.num_shared_experts = config.shared_experts
        self._config = config
        self._group = _group_of(group, device)
        self._core = _core.SymmetricBuffer(config, self._group._core)
        self._layers = weakref.WeakKeyDictionary()
        fp8 = "bf16" if config.recipe == "bf16_bf16" else "fp8"
        array = framework.array
        self.buffer = array(self._core.data, "int8")
        self.handle = types.SimpleNamespace(buffer_ptrs=self._core.data_pointers)
        self.x = array(self._core.x, fp8)
        self.x_sf = _maybe(array, self._core.x_scales)
        self.topk_idx = array(self._core.experts, "plain")
        self.topk_weights = array(self._core.weights, "plain")
        self.l1_acts = array(self._core.gemm1_input, fp8)
        self.l1_acts_sf = _maybe(array, self._core.gemm1_input_scales)
        self.l2_acts = array(self._core.gemm2_input, fp8)
        self.l2_acts_sf = _maybe(array, self._core.gemm2_input_scales)

    def destroy(self):
        """Gives up the memory, as far as this rank goes. The views must not be used any more."""
        self._layers = weakref.WeakKeyDictionary()
        self._core = None
        self._group = None
        self.group = None
        self.buffer = None
        self.handle = None
        for view in _VIEWS:
            setattr(self, view, None)

    def _layer(self, experts, shared, clamp, options=()):
        """The layer of these weights on this buffer; the first call with them makes it, on every rank."""
        if self._core is None:
            raise InvalidArgumentError("the symmetric buffer is destroyed: make a new one")
        made = self._layers.setdefault(experts, {})
        key = (id(shared), clamp, options)
        if key not in made:
            made[key] = (shared, self._make_layer(experts, shared, clamp, dict(options)))
        return made[key][1]

    def _make_layer(self, experts, shared, clamp, options):
        local = self._core.local_experts
        if (experts.count, experts.hidden, experts.intermediate) != (local, self.hidden, self.intermediate_hidden):
            raise InvalidArgumentError(
                f"the weights hold {experts.count} experts with H {experts.hidden} and I {experts.intermediate}: the buffer has "
                f"{local} at rank {self._group.rank} with H {self.hidden} and I {self.intermediate_hidden}")
        if self.num_shared_experts and shared is None:
            raise InvalidArgumentError(f"the buffer has num_shared_experts = {self.num_shared_experts}, but shared_l1_weights and "
                                       f"shared_l2_weights are missing")
        if shared is not None and not self.num_shared_experts:
            raise InvalidArgumentError("shared weights are given, but the buffer has num_shared_experts = 0")
        config = self._config.copy()
        config.activation_limit = clamp
        return experts.layer(config, self._group, shared, options)


def _maybe(array, scales):
    return None if scales is None else array(scales, "plain")


def _is_process_group(group):
    """Of torch.distributed, by what it can do: PyTorch need not be there."""
    return callable(getattr(group, "size", None)) and callable(getattr(group, "rank", None))


def _single(device):
    return Group.single() if device is None else Group.devices([device])[0]


def _group_of(group, device):
    """A Group of its own for a buffer, so that several buffers share neither memory nor calls."""
    if group is None:
        return _single(device)
    if isinstance(group, Group):
        if device not in (None, group.device):
            raise InvalidArgumentError(f"device is {device}, but the group's is {group.device}")
        return _single(group.device) if group.ranks == 1 else group.duplicate()
    if not _is_process_group(group):
        raise InvalidArgumentError(f"group is a {type(group).__name__}: None, a megamoe.Group or a torch.distributed process group is wanted")
    if group.size() == 1:
        return _single(device)
    import torch.distributed as dist

    # The first rank names the meeting; a name of another boot of another machine is another host's.
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        host = file.read().strip()
    message = [(host, f"torch-{os.getpid()}-{time.monotonic_ns()}")]
    dist.broadcast_object_list(message, src=dist.get_global_rank(group, 0), group=group)
    if message[0][0] != host:
        raise UnsupportedError("the ranks of the process group are on several hosts, and a group reaches as far as one load/store "
                               "domain: take a process group of one host")
    return Group.processes(group.rank(), group.size(), message[0][1], device=device)


def _device_of(group):
    """The CUDA device of a process group's ranks; None for the CPU."""
    if not _is_process_group(group):
        return None
    import torch
    import torch.distributed as dist

    return torch.cuda.current_device() if torch.cuda.is_available() and "nccl" in str(dist.get_backend(group)) else None


def _make_buffer(group, recipe, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                 num_shared_experts, activation, framework, device):
    if activation != "swiglu":
        raise InvalidArgumentError(f"activation '{activation}': 'swiglu' is wanted")
    if num_max_tokens_per_rank < 1:
        raise InvalidArgumentError(f"num_max_tokens_per_rank is {num_max_tokens_per_rank}: at least 1 is wanted")
    if recipe != "bf16_bf16" and (hidden % 128 or intermediate_hidden % 128):
        raise InvalidArgumentError(f"hidden is {hidden} and intermediate_hidden {intermediate_hidden}: multiples of 128 are wanted "
                                   f"here (megamoe.Layer takes others)")
    config = _core.LayerConfig(
        hidden=hidden, intermediate=intermediate_hidden, experts=num_experts, top_k=num_topk,
        max_tokens=align(num_max_tokens_per_rank, get_token_alignment_for_mega_moe()), shared_experts=num_shared_experts,
        recipe=recipe)
    if framework is None:
        framework = "torch" if _is_process_group(group) else "numpy"
    return SymmBuffer(group, config, named(framework), _device_of(group) if device is None else device)


def get_symm_buffer_for_mega_moe(group, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                                 num_shared_experts=0, use_fp8_dispatch=None, mma_type="fp8xfp4", activation="swiglu", *,
                                 framework=None, device=None):
    """Allocates the symmetric memory of calls of one shape. Collective.

    Args:
        group: a torch.distributed process group of one host, a megamoe.Group, or None for a group of one rank.
        num_experts: routed experts over all ranks; a rank owns ceil(num_experts / ranks) of them in order.
        num_max_tokens_per_rank: tokens per rank and call.
        hidden, intermediate_hidden: H and I, multiples of 128 (any for bf16).
        use_fp8_dispatch: deprecated; None, or what mma_type says.
        mma_type: "fp8xfp4", or "bf16xbf16" for bf16_mega_moe.
        framework: "torch" or "numpy": whose arrays the views are; None: PyTorch's for a process group, else NumPy's.
        device: number of a CUDA device; None: the current one for a process group of NCCL, else the CPU.
    Returns:
        a SymmBuffer.
    Raises:
        InvalidArgumentError for sizes that do not fit, UnsupportedError for another mma_type or several hosts,
        OutOfMemoryError, DeadlineError.
    """
    recipe = recipe_of_mma_type(mma_type)
    if use_fp8_dispatch is not None:
        if bool(use_fp8_dispatch) != (recipe == "fp8_fp4"):
            raise InvalidArgumentError(f"use_fp8_dispatch is {use_fp8_dispatch}, but mma_type is '{mma_type}'")
        warnings.warn("use_fp8_dispatch is deprecated: mma_type says it", DeprecationWarning, stacklevel=2)
    return _make_buffer(group, recipe, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                        num_shared_experts, activation, framework, device)


def get_symm_buffer_for_mega_moe_split(group, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                                       num_shared_experts=0, use_fp8_dispatch=None, mma_type="fp8xfp4",
                                       activation="swiglu", *, framework=None, device=None):
    """As get_symm_buffer_for_mega_moe, for MegaMoESplitGraph: the same memory serves every execution."""
    return get_symm_buffer_for_mega_moe(group, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                                        num_shared_experts, use_fp8_dispatch, mma_type, activation, framework=framework,
                                        device=device)


def get_symm_buffer_for_sm90_mega_moe(group, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                                      use_fp8_dispatch=True, activation="swiglu", num_shared_experts=0, *, framework=None, device=None):
    """As get_symm_buffer_for_mega_moe, for fp8_mega_moe: E4M3 weights, and x_sf float32 per 128."""
    if not use_fp8_dispatch:
        raise UnsupportedError("use_fp8_dispatch is False: fp8_mega_moe takes x in E4M3")
    return _make_buffer(group, "fp8_fp8", num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden,
                        num_shared_experts, activation, framework, device)
