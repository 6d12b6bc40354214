"""Layers, and what runs them."""
import os

from . import _core
from ._arrays import copy_on_device, current_stream, empty_bfloat16, exportable
from ._errors import InvalidArgumentError
from ._group import Group
from ._weights import Weights


class Layer:
    """One mixture-of-experts layer of a group, ready to run:

        y[t] = sum over slots s of  weight[t, s] * W2[e] * act(W1[e] * x[t]),   e = expert[t, s]

    Making one is collective: every rank makes it, in the same order, and all compare shape, recipe and version first.
    Calls are collective too. Forward only: there are no gradients. The GIL is released while a layer packs, computes or
    waits. Layers of a group with equal sizes share one piece of memory for batches.

    In a group of CUDA devices x, experts, weights and y are memory of the rank's device. Tensors of PyTorch: the call is
    enqueued on PyTorch's current stream and returns at once, and `wait` raises what the device ran into. Other arrays: the
    call returns when y is complete, after what the device's default stream was given. The recipe is fp8_fp4 or fp8_fp8, the
    weights are in host memory.

    Args:
        config: a LayerConfig, equal on all ranks.
        weights: Weights; or a CheckpointLayer of load_layer; or the path of a file that save_packed wrote for the same
            config, ranks and rank. Packed at once (peak memory: the packed form and one expert); the arrays may go then.
            Or another layer's packed_experts, which are shared, not copied: for a layer of this rank with another
            capacity, top_k, activation, group or other options, but the same experts.
        group: a Group; None for a group of one rank.
        workers: threads of a fused or staged call, and of the combine of a split one; None: this rank's share of the cores.
            CUDA: multiprocessors.
        k1_workers, k2_workers: those of the split's two halves (dispatch with GEMM 1, and GEMM 2).
        block_rows: rows of one expert that become ready together: 16, 32, 64, 96, 128 or 192; CUDA: 16 to 176 in steps of
            16, None: a choice for each call.
        instruction_set: "scalar", "avx2" or "avx512"; None: the best that the machine has. Not on CUDA.

    Raises:
        InvalidArgumentError for sizes that do not fit, FormatError for weights that are not finite, MismatchError that
        names what the ranks disagree on, OutOfMemoryError, UnsupportedError, DeadlineError.

    Example:
        >>> checkpoint = megamoe.load_layer("model", 0, max_tokens=512)
        >>> layer = megamoe.Layer(checkpoint.config, checkpoint)
        >>> experts, weights = megamoe.route(checkpoint.router, x)   # x: bf16 [tokens, hidden]
        >>> y = layer(x, experts, weights)                           # bf16 [tokens, hidden]
    """

    __slots__ = ("_core", "_group")

    def __init__(self, config, weights, group=None, *, workers=None, k1_workers=None, k2_workers=None, block_rows=None,
                 instruction_set=None):
        group = Group.single() if group is None else group
        options = _core.LayerOptions(workers=workers, k1_workers=k1_workers, k2_workers=k2_workers, block_rows=block_rows,
                                     instruction_set=instruction_set)
        self._group = group
        self._core = _core.Layer(config, _source(weights), group._core, options)

    def __call__(self, x, experts, weights, y=None, *, execution="fused"):
        """Runs the layer on the caller's arrays.

        Args:
            x: bf16 [tokens, H], tokens <= max_tokens. Not copied: the call converts it to the recipe's format.
            experts: int64 or int32 [tokens, top_k]; negative: no route. The same expert twice in a row is one route with
                the sum of the weights.
            weights: float32 [tokens, top_k].
            y: bf16 [tokens, H] to write, or None for a new array of x's framework.
            execution: "fused", "split" or "staged": the same bits.
        Returns:
            y.
        Raises:
            InvalidArgumentError for arrays that do not fit, before anything runs; and for an expert id beyond the layer's:
            then the call has completed, y of that token is NaN, and the group stays usable. DeadlineError, PeerLostError
            or AbortedError when a call that had begun could not end: y is NaN, and the group refuses further calls.
        """
        if self._group.device is None:
            if y is None:
                y = empty_bfloat16(_shape_of(x), like=x)
            self._core.run(exportable(x), exportable(experts), exportable(weights), exportable(y), execution)
            return y
        batch = self.batch(_shape_of(x)[0])
        copy_on_device(experts, batch.experts)
        copy_on_device(weights, batch.weights)
        return self.forward(batch, y, x=x, execution=execution)

    def batch(self, tokens):
        """A Batch: views into this rank's memory, to be filled before forward. 0 <= tokens <= max_tokens."""
        return self._core.batch(tokens, self._group._core)

    def forward(self, batch, y=None, *, x=None, execution="fused", stream=None):
        """Runs the layer on a batch that the caller has filled. Arguments and errors as in __call__, and:

        Args:
            batch: of this layer's `batch`.
            x: None if batch.x and batch.x_scales are filled; or bf16 [tokens, H] to use instead, not copied.
            y: None only on the CPU, or with an x of PyTorch.
            stream: CUDA: a cudaStream_t as an integer, to enqueue on; None: PyTorch's current one for tensors.
        """
        if y is None:
            y = empty_bfloat16((batch.tokens, self._core.config.hidden), like=x)
        if stream is None and self._group.device is not None:
            stream = current_stream(y)
            if stream == 0 and self._group._shares_device:
                raise InvalidArgumentError(f"rank {self._group.rank} shares CUDA device {self._group.device} with other ranks, whose calls on "
                                           f"the default stream would wait for each other for ever: call it under "
                                           f"torch.cuda.stream(torch.cuda.Stream())")
        batch._set_x_bf16(None if x is None else exportable(x))
        self._core.forward(batch, exportable(y), execution, stream)
        return y

    def wait(self):
        """CUDA: waits for this rank's calls so far, then raises what they ran into. Nothing to do on the CPU."""
        self._core.wait()

    def poll(self):
        """CUDA: whether this rank's calls are over; if so, raises what they ran into. True on the CPU."""
        return self._core.poll()

    def graph(self, y, *, execution="fused"):
        """A Graph: a call whose buffers are settled once. y: bf16 [max_tokens, H]."""
        return Graph(self, y, execution)

    def refresh(self, weights):
        """Replaces this rank's weights in place, keeping plan and memory, also for layers that share them. Not while a call
        of any of them runs. When it raises for what is wrong with them, the layer keeps the weights that it had."""
        if not isinstance(weights, (Weights, _core.CheckpointLayer)):
            raise InvalidArgumentError(f"weights are a {type(weights).__name__}: Weights or a CheckpointLayer are wanted")
        self._core.refresh(_source(weights))

    @property
    def packed_experts(self):
        """This rank's PackedExperts, for other layers to share."""
        return self._core.packed_experts

    def save_packed(self, file):
        """Writes this rank's packed experts to a file, for a later Layer(config, file, group)."""
        self._core.save_packed(os.fspath(file))

    def explain(self):
        """What was planned and why, in words."""
        return self._core.explain()

    @property
    def config(self):
        """A copy of the LayerConfig."""
        return self._core.config

    @property
    def group(self):
        """The Group that the layer belongs to."""
        return self._group

    @property
    def report(self):
        """A CallReport: what the last call of this layer did at this rank."""
        return self._core.report

    def __repr__(self):
        return f"Layer({self.config!r}, rank={self._group.rank}, ranks={self._group.ranks})"


class Graph:
    """A call whose buffers are settled once: the layer's batch in, one y out. Made by Layer.graph.

    What may change between replays is read anew by each: x, ids, weights, the number of tokens, refreshed weights. Nothing
    is to be reset.
    """

    __slots__ = ("_core", "layer", "y")

    def __init__(self, layer, y, execution):
        self.layer = layer
        self.y = y
        self._core = layer._core.graph(exportable(y), execution, layer._group._core)

    def replay(self, tokens, *, stream=None):
        """Runs the layer on the batch of `tokens` tokens that Layer.batch shows; rows of y from `tokens` on are untouched.
        Returns when y is complete; CUDA, with a stream (a cudaStream_t as an integer): enqueues that and returns. Errors as
        in Layer.__call__."""
        self._core.replay(tokens, stream)


def plan(config, ranks=1, *, workers=None, k1_workers=None, k2_workers=None, block_rows=None, instruction_set=None):
    """The Plan that a layer of this LayerConfig would have on the CPU in a group of `ranks` ranks of this host. Options as
    those of Layer; raises what Layer raises for sizes and options."""
    options = _core.LayerOptions(workers=workers, k1_workers=k1_workers, k2_workers=k2_workers, block_rows=block_rows,
                                 instruction_set=instruction_set)
    return _core.plan(config, ranks, options)


def _shape_of(x):
    shape = getattr(x, "shape", None)
    if shape is None:
        raise InvalidArgumentError(f"x is a {type(x).__name__}: an array is wanted, of NumPy, or of any library with DLPack "
                                   f"(__dlpack__)")
    return tuple(shape)


def _source(weights):
    if isinstance(weights, Weights):
        return weights._core
    if isinstance(weights, (_core.CheckpointLayer, _core.PackedExperts)):
        return weights
    if isinstance(weights, (str, os.PathLike)):
        return os.fspath(weights)
    raise InvalidArgumentError(f"weights are a {type(weights).__name__}: Weights, a CheckpointLayer, PackedExperts or the "
                               f"path of a packed file are wanted")
