"""megamoe runs one mixture-of-experts layer over several ranks as one operation.

    import megamoe

    checkpoint = megamoe.load_layer("model", 0, max_tokens=512)
    layer = megamoe.Layer(checkpoint.config, checkpoint)
    experts, weights = megamoe.route(checkpoint.router, x)      # x: bf16 [tokens, hidden]
    y = layer(x, experts, weights)
    print(layer.explain())

Arrays are NumPy's, or those of any library with DLPack (PyTorch, CuPy, JAX), and are not copied. bfloat16 is
ml_dtypes.bfloat16 in NumPy, or uint16 with the bits. `megamoe.deep_gemm` offers the names of DeepGEMM's interface.
"""
from ._arrays import to_bfloat16, to_float32
from ._core import Batch, CallReport, CheckpointLayer, LayerConfig, PackedExperts, Plan, RouterConfig, __version__
from ._errors import (
    AbortedError,
    DeadlineError,
    Error,
    FormatError,
    InternalError,
    InvalidArgumentError,
    IoError,
    MismatchError,
    OutOfMemoryError,
    PeerLostError,
    UnsupportedError,
)
from ._group import Group
from ._layer import Graph, Layer, plan
from ._routing import convert_x, load_layer, route
from ._weights import Weights

__all__ = [
    "AbortedError", "Batch", "CallReport", "CheckpointLayer", "DeadlineError", "Error", "FormatError", "Graph", "Group",
    "InternalError", "InvalidArgumentError", "IoError", "Layer", "LayerConfig", "MismatchError", "OutOfMemoryError",
    "PackedExperts", "PeerLostError", "Plan", "RouterConfig", "UnsupportedError", "Weights", "__version__", "convert_x", "load_layer", "plan",
    "route", "to_bfloat16", "to_float32",
]
