"""Small models and their outputs by an independent implementation: tests/fixtures."""
import json
import pathlib
import struct

import numpy

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
FAMILIES = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3")

_DTYPES = {"F32": numpy.float32, "BF16": numpy.uint16, "U8": numpy.uint8, "F8_E4M3": numpy.uint8}


def tensors(family, file):
    """Every tensor of a safetensors file; bf16 as uint16, E4M3 as uint8."""
    data = (FOLDER / family / file).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = numpy.frombuffer(data[8 + length + begin:8 + length + end], dtype=_DTYPES[entry["dtype"]])
        result[name] = flat.reshape(entry["shape"])
    return result


def expected(family):
    """(hidden_states bf16 as uint16 [T, H], output float32 [T, H])."""
    read = tensors(family, "expected.safetensors")
    return read["hidden_states"], read["output"]


def relative_l2(got, wanted):
    got = numpy.asarray(got, dtype=numpy.float64)
    return float(numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted))
