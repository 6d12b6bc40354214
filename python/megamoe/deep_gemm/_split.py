"""The split execution with buffers settled once."""
import os

from .. import _core
from .._errors import InvalidArgumentError, UnsupportedError
from ._calls import _check_stats, _forward, _layer_of
from ._casts import ceil_div
from ._frameworks import add_in_place, check_int32, write_words

# What the interface's defaults are a share of.
_SMS = (96, 52, 148)
_STATE_WORDS = 7


class MegaMoESplitGraph:
    """The split execution of one or more buffers in flight: dispatch with GEMM 1 (K1) and GEMM 2 (K2) run at once on disjoint
    processors, then the combine (K3). Bits are those of fp8_fp4_mega_moe. Collective, as its replays.

    Args:
        states: int32 arrays of at least 7 words, one per buffer. After a replay word 3 has the GEMM-2 tiles done, word 4 the
            workers of K2 that are done, word 5 the tokens reduced; the rest is reserved. They need no clearing.
        ys: bf16 [T, H], T >= num_tokens: rows that a replay has no token for are untouched.
        sym_buffers: of get_symm_buffer_for_mega_moe_split.
        l1_weights, l2_weights: of transform_weights_for_mega_moe, one of each per buffer.
        cumulative_local_expert_recv_stats: int32 arrays or Nones, one per buffer; or None.
        num_tokens: tokens per buffer of a replay that names no other number.
        activation_clamp, fast_math: as fp8_fp4_mega_moe.
        kernel1_sms, kernel2_sms, reduce_sms: processors of K1, K2 and K3: multiprocessors of a device, on the CPU threads.
            None, or the interface's own 96, 52 and 148, which are for 148: as a device's plan has them, on the CPU shares of
            this rank's cores.
        kernel2_work_iters, reduce_work_iters: 0; another value is refused, since work is not cut in such pieces.
    """

    def __init__(self, states, ys, sym_buffers, l1_weights, l2_weights, cumulative_local_expert_recv_stats=None,
                 num_tokens=None, activation_clamp=None, fast_math=True, kernel1_sms=None, kernel2_sms=None, reduce_sms=None,
                 kernel2_work_iters=0, reduce_work_iters=0):
        for name, value in (("kernel2_work_iters", kernel2_work_iters), ("reduce_work_iters", reduce_work_iters)):
            if value != 0:
                raise UnsupportedError(f"{name} is {value}: 0 is wanted, megamoe has no such pieces of work")
        stats = [None] * len(states) if cumulative_local_expert_recv_stats is None else cumulative_local_expert_recv_stats
        lists = (states, ys, sym_buffers, l1_weights, l2_weights, stats)
        if not states or {len(one) for one in lists} != {len(states)}:
            raise InvalidArgumentError(f"the lists have {[len(one) for one in lists]} entries: one each per buffer is wanted")
        self._buffers = []
        for state, y, buffer, l1, l2, stat in zip(*lists):
            options = _options(buffer, kernel1_sms, kernel2_sms, reduce_sms)
            layer = _layer_of(buffer, "fp8_fp4", l1, l2, None, None, "swiglu", activation_clamp, options)
            check_int32(state, "a state", -_STATE_WORDS)
            _check_stats(stat, buffer)
            self._buffers.append((state, y, buffer, layer, stat, _core.LayerOptions(**dict(options))))
        self._num_tokens = min(y.shape[0] for y in ys) if num_tokens is None else num_tokens
        self._check_tokens(self._num_tokens)

    def replay(self, num_tokens=None):
        """Runs every buffer on its first num_tokens tokens, in order; x, ids, weights and T may be others each time. Returns
        when all are complete; on a device the work is on PyTorch's current stream."""
        tokens = self._num_tokens if num_tokens is None else num_tokens
        self._check_tokens(tokens)
        for _, y, _, layer, _, _ in self._buffers:
            _forward(layer, y[:tokens], "split")
        for state, _, buffer, layer, stat, options in self._buffers:
            layer.wait()
            rows = layer.report.rows_per_expert
            if stat is not None:
                add_in_place(stat, rows[:buffer._core.local_experts])
            planned = _core.plan_split(layer.config, layer.group._core, options, tokens)
            blocks = sum(ceil_div(count, planned.block_rows) for count in rows)
            write_words(state, 3, [blocks * planned.gemm2_tasks_per_block, planned.k2_workers, tokens])

    def get_green_context_ids(self):
        """Empty: K1 and K2 hold the multiprocessors that they were given without green contexts, and threads on the CPU."""
        return []

    def _check_tokens(self, tokens):
        for _, y, buffer, *_ in self._buffers:
            limit = min(y.shape[0], buffer.num_max_tokens_per_rank)
            if not 0 <= tokens <= limit:
                raise InvalidArgumentError(f"num_tokens is {tokens}: 0 to {limit} is wanted, what y and buffer hold")


SM100FP8FP4MegaMoESplitGraph = MegaMoESplitGraph


def _options(buffer, kernel1_sms, kernel2_sms, reduce_sms):
    given = (kernel1_sms, kernel2_sms, reduce_sms)
    if given == _SMS:
        given = (None, None, None)
    if buffer._group.device is not None:
        names = ("k1_workers", "k2_workers", "workers")
        return tuple((name, value) for name, value in zip(names, given) if value is not None)
    if None not in given:
        return (("k1_workers", given[0]), ("k2_workers", given[1]), ("workers", given[2]))
    cores = max(1, len(os.sched_getaffinity(0)) // buffer._group.ranks)
    first = given[0] if given[0] is not None else max(1, round(cores * _SMS[0] / _SMS[2]))
    second = given[1] if given[1] is not None else max(1, cores - first)
    third = given[2] if given[2] is not None else cores
    return (("k1_workers", first), ("k2_workers", second), ("workers", third))
