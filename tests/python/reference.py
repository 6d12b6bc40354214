"""The layer in float64 NumPy, on the values that the bytes stand for: formats by ml_dtypes, sums by NumPy."""
import ml_dtypes
import numpy

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def from_e4m3(values):
    return numpy.asarray(values).view(ml_dtypes.float8_e4m3fn).astype(numpy.float64)


def from_bf16(bits):
    return numpy.asarray(bits).view(numpy.uint16).view(ml_dtypes.bfloat16).astype(numpy.float64)


def from_e2m1(packed):
    """[..., n] bytes to [..., 2 n] values, the low nibble first."""
    packed = numpy.asarray(packed).view(numpy.uint8)
    return E2M1[numpy.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)]


def from_ue8m0(values):
    return 2.0 ** (numpy.asarray(values).view(numpy.uint8).astype(numpy.float64) - 127)


def spread(scales, group, columns):
    """Scales per group as factors per column."""
    return numpy.repeat(scales, group, axis=-1)[..., :columns]


def spread_blocks(scales, rows, columns):
    """Scales per 128 x 128 as factors per value."""
    return numpy.repeat(spread(scales, 128, columns), 128, axis=-2)[..., :rows, :]


def round_bf16(values):
    return values.astype(numpy.float32).astype(ml_dtypes.bfloat16).astype(numpy.float64)


def requantise(values):
    """Rows to E4M3 and back, with a power of two per 128 that is rounded up before it divides."""
    result = numpy.zeros_like(values)
    for first in range(0, values.shape[-1], 128):
        group = values[..., first:first + 128]
        largest = numpy.abs(group).max(axis=-1, keepdims=True)
        scale = 2.0 ** numpy.ceil(numpy.log2(numpy.where(largest == 0, 448, largest) / 448))
        result[..., first:first + 128] = (group / scale).astype(ml_dtypes.float8_e4m3fn).astype(numpy.float64) * scale
    return result


def expert(x, w1, w2, weight, clamp=None, fp8=True):
    """One expert on rows x with a weight each."""
    gate, up = numpy.split(round_bf16(x @ w1.T), 2, axis=-1)
    if clamp is not None:
        gate, up = numpy.minimum(gate, clamp), numpy.clip(up, -clamp, clamp)
    act = gate / (1 + numpy.exp(-gate)) * up * weight[:, None]
    return round_bf16((requantise(act) if fp8 else round_bf16(act)) @ w2.T)


def layer(x, experts, weights, w1, w2, clamp=None, fp8=True, shared=()):
    """x [T, H], experts and weights [T, K], w1 [E, 2 I, H], w2 [E, H, I]; shared: pairs of matrices."""
    y = numpy.zeros_like(x)
    for e in range(w1.shape[0]):
        rows, slots = numpy.nonzero(experts == e)
        if len(rows):
            numpy.add.at(y, rows, expert(x[rows], w1[e], w2[e], weights[rows, slots], clamp, fp8))
    for s1, s2 in shared:
        y += expert(x, s1, s2, numpy.ones(len(x)), clamp, fp8)
    return y
