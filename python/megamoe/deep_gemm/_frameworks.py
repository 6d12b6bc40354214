"""The array library of a caller: NumPy, or PyTorch where the caller uses it."""
import sys

import numpy

from .._arrays import exportable, is_torch
from .._errors import InvalidArgumentError

# What PyTorch calls the formats whose bits NumPy shows as integers.
_TORCH_NAMES = {"fp8": "float8_e4m3fn", "fp4": "int8", "bf16": "bfloat16", "bytes": "uint8", "int8": "int8"}
_NUMPY_NAMES = {"int8": "int8"}


class NumPy:
    """Arrays of NumPy: fp8 and fp4 are uint8, bf16 is uint16."""

    name = "numpy"

    def array(self, bits, kind):
        if not isinstance(bits, numpy.ndarray):
            raise InvalidArgumentError("framework 'numpy' cannot show memory of a CUDA device: 'torch' is wanted")
        return bits.view(_NUMPY_NAMES[kind]) if kind in _NUMPY_NAMES else bits


class Torch:
    """Tensors of PyTorch over the same memory."""

    name = "torch"

    def __init__(self):
        import torch

        self._torch = torch

    def array(self, bits, kind):
        if isinstance(bits, numpy.ndarray):
            tensor = self._torch.from_numpy(bits.view(numpy.int16) if bits.dtype == numpy.uint16 else bits)
        else:
            tensor = self._torch.from_dlpack(bits)  # memory of a device
        return tensor.view(getattr(self._torch, _TORCH_NAMES[kind])) if kind in _TORCH_NAMES else tensor


def framework_of(array):
    return Torch() if is_torch(array) else NumPy()


def named(name):
    if name == "numpy":
        return NumPy()
    if name == "torch":
        return Torch()
    raise InvalidArgumentError(f"framework '{name}': 'numpy' or 'torch' is wanted")


def on_host(array):
    """The bits as a NumPy array: the same memory where it is the host's, a copy of a device's."""
    if is_torch(array):
        return exportable(array.detach().cpu()).numpy()
    return exportable(numpy.asarray(array) if not isinstance(array, numpy.ndarray) else array)


def like(array, bits, kind):
    """A result in the array library, and on the device, of `array`."""
    result = framework_of(array).array(bits, kind)
    return result.to(array.device) if is_torch(array) else result


def add_in_place(array, values):
    """array += values, for an int32 array that a caller keeps."""
    if is_torch(array):
        array += sys.modules["torch"].as_tensor(values, dtype=array.dtype).to(array.device)
    else:
        array += numpy.asarray(values, dtype=array.dtype)


def write_words(array, first, values):
    """array[first:first + n] = values."""
    if is_torch(array):
        torch = sys.modules["torch"]
        array.view(-1)[first:first + len(values)] = torch.as_tensor(values, dtype=array.dtype).to(array.device)
    else:
        array.reshape(-1)[first:first + len(values)] = values


def check_int32(array, what, size):
    """A caller's int32 words: `size` of them, or at least so many for a negative one."""
    dtype = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if dtype != "int32":
        raise InvalidArgumentError(f"{what} has elements of {dtype or type(array).__name__}: an int32 array is wanted")
    values = 1
    for length in array.shape:
        values *= length
    if values != size and (size >= 0 or values < -size):
        wanted = size if size >= 0 else f"at least {-size}"
        raise InvalidArgumentError(f"{what} has {values} words: {wanted} are wanted")
    return array
