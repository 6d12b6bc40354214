"""Arrays of any framework: the same memory under another name, never a copy."""
import sys

import numpy

from ._errors import InvalidArgumentError

# Element formats that the DLPack export of NumPy, and of PyTorch for some, cannot name: shown as unsigned integers.
_BITS_OF_NUMPY = {1: numpy.uint8, 2: numpy.uint16}


def is_torch(array):
    """Whether it is a tensor of PyTorch, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def dtype_name(array):
    """ "bfloat16", "float8_e4m3fn", "int64", ...; None if it has no dtype."""
    dtype = getattr(array, "dtype", None)
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _bits_of(dtype):
    """The dtype of NumPy that stands for one of ml_dtypes, None for NumPy's own."""
    if dtype.type.__module__ != "ml_dtypes":
        return None
    if dtype.name.startswith(("float4", "int4", "uint4", "int2", "uint2")):
        raise InvalidArgumentError(f"an array of {dtype.name} has one value per byte: pass two per byte as uint8, the even column in the low half")
    return _BITS_OF_NUMPY[dtype.itemsize]


_views = {}  # what _bits_of says, for the dtypes that came by: asking a dtype for its name takes longer than a call


def exportable(array):
    """The same memory as something that the C++ side can take over DLPack or the buffer protocol."""
    if isinstance(array, numpy.ndarray):
        dtype = array.dtype
        if dtype not in _views:
            _views[dtype] = _bits_of(dtype)
        view = _views[dtype]
        return array if view is None else array.view(view)
    if is_torch(array):
        torch = sys.modules["torch"]
        tensor = array.detach()
        if tensor.dtype.is_floating_point and tensor.element_size() == 1:
            return tensor.view(torch.uint8)
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16)
        return tensor
    return array


def ml_dtype(name):
    """NumPy's dtype of ml_dtypes, or None where ml_dtypes is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return numpy.dtype(getattr(ml_dtypes, name))


def empty_bfloat16(shape, like=None):
    """A new bf16 array: a tensor of PyTorch on the same device if `like` is one, else NumPy's."""
    if like is not None and is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=torch.bfloat16, device=like.device)
    return numpy.empty(shape, dtype=ml_dtype("bfloat16") or numpy.uint16)


def current_stream(array):
    """PyTorch's current stream of a tensor's CUDA device as an integer; None for other arrays."""
    if not is_torch(array) or not array.is_cuda:
        return None
    return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream


def copy_on_device(source, view):
    """Copies a caller's array into a view of device memory, with the library that the caller's array is of."""
    if is_torch(source):
        sys.modules["torch"].from_dlpack(view).copy_(source)
    elif type(source).__module__.split(".")[0] == "cupy":
        sys.modules["cupy"].from_dlpack(view)[...] = source
    else:
        raise InvalidArgumentError(f"a {type(source).__name__} in a call on a CUDA device: a tensor of PyTorch or an array of CuPy is "
                                   f"wanted, or fill Layer.batch and call Layer.forward")


def to_bfloat16(array):
    """float32 values rounded to the nearest bfloat16, ties to even.

    Args:
        array: a float32 array of NumPy, or what numpy.asarray takes.
    Returns:
        a NumPy array of the same shape: of ml_dtypes.bfloat16, or of uint16 with the bits where ml_dtypes is not installed.
    """
    from . import _core

    values = numpy.ascontiguousarray(array, dtype=numpy.float32)
    bits = numpy.empty(values.size, dtype=numpy.uint16)
    _core.round_to_bf16(values.reshape(-1), bits)
    dtype = ml_dtype("bfloat16")
    return (bits if dtype is None else bits.view(dtype)).reshape(values.shape)


def to_float32(array):
    """bfloat16 values as float32, exactly.

    Args:
        array: a NumPy array of bfloat16, of uint16 with the bits of it, or of float32; or a tensor of PyTorch.
    Returns:
        a NumPy array of float32 of the same shape.
    """
    if is_torch(array):
        return array.detach().float().cpu().numpy()
    values = numpy.asarray(array)
    if values.dtype == numpy.float32:
        return values
    if values.dtype.itemsize != 2 or values.dtype == numpy.float16:
        raise InvalidArgumentError(f"an array of {values.dtype}: bfloat16 or its bits as uint16 are wanted")
    widened = exportable(values).astype(numpy.uint32) << 16
    return widened.view(numpy.float32)


def contiguous_float32(array, what):
    """Small host arrays (router weights, biases) as float32, copied where they are of another type."""
    if array is None:
        return None
    if is_torch(array):
        return numpy.ascontiguousarray(array.detach().float().cpu().numpy())
    if dtype_name(array) in ("bfloat16", "uint16"):
        return numpy.ascontiguousarray(to_float32(numpy.asarray(array)))
    try:
        return numpy.ascontiguousarray(array, dtype=numpy.float32)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{what} is no array of numbers: {error}") from error
