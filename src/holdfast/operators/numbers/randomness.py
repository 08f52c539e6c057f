"""Random values that are a function of the place of a draw: reproducible on any machine, in any order.

A draw has a *place*: the hash of its row, and its number among the rows of that hash in this epoch. ``words`` mixes the
place with a key (the lineage's seed, the operator, the function) into 64 random bits, from which all values are
computed. So a value does not depend on other rows, on partitions, or on any order.

Values are bit for bit the same everywhere: only integer operations are used, and +, -, *, / and sqrt of doubles, which
IEEE 754 defines exactly, one NumPy call each. The logarithm is computed here, since the last bits of the platform's
logarithm differ between processors. All functions are vectorised; O(rows).
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.trace.physical import Ints, Words

Doubles = npt.NDArray[np.float64]

_G = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11, _S12 = (np.uint64(bits) for bits in (30, 27, 31, 11, 12))


def words(key: tuple[object, ...], hashes: Words, numbers: Ints) -> Words:
    """64 random bits for each place (hash, number), under a key."""
    start = np.frombuffer(blake2b(repr(key).encode(), digest_size=8).digest(), "<u8").astype(np.uint64)
    return _mixed(_mixed(hashes ^ start) + numbers.astype(np.uint64) * _G)


def _mixed(values: Words) -> Words:
    """Splitmix64: a bijection of the words, so different places of one hash never get equal words."""
    values = values + _G
    values = (values ^ (values >> _S30)) * _M1
    values = (values ^ (values >> _S27)) * _M2
    return values ^ (values >> _S31)


def uniform(bits: Words) -> Doubles:
    """Uniform values in [0, 1)."""
    return (bits >> _S11).astype(np.float64) * 2.0**-53


def normal(bits: Words) -> Doubles:
    """Standard normal values: the inverse distribution function at a uniform value (Wichura, AS 241)."""
    p = ((bits >> _S12).astype(np.float64) + 0.5) * 2.0**-52  # exact, and never 0 or 1
    q = p - 0.5
    r = 0.180625 - q * q
    centre = q * _polynomial(_A, r) / _polynomial(_B, r)
    tail = np.flatnonzero(np.abs(q) > 0.425)
    if len(tail):
        root = np.sqrt(-_log(np.minimum(p[tail], 1.0 - p[tail])))
        near = _polynomial(_C, root - 1.6) / _polynomial(_D, root - 1.6)
        far = _polynomial(_E, root - 5.0) / _polynomial(_F, root - 5.0)
        centre[tail] = np.copysign(np.where(root <= 5.0, near, far), q[tail])
    return centre


def _polynomial(coefficients: tuple[float, ...], x: Doubles) -> Doubles:
    """Horner's scheme, highest power first."""
    result = np.full(len(x), coefficients[0])
    for each in coefficients[1:]:
        result = result * x + each
    return result


def _log(x: Doubles) -> Doubles:
    """The natural logarithm of positive doubles, by the series of artanh; relative error about 1e-15."""
    fraction, exponent = np.frexp(x)
    small = fraction < 0.7071067811865476
    fraction = np.where(small, fraction * 2.0, fraction)
    power = (exponent - small).astype(np.float64)
    s = (fraction - 1.0) / (fraction + 1.0)
    series = _polynomial(tuple(1.0 / odd for odd in range(23, 0, -2)), s * s)
    return power * 0.6931471805599453 + 2.0 * s * series


_A = (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
      1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0)  # fmt: skip
_B = (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
      5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0)  # fmt: skip
_C = (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.4178072517745061177e-1, 1.27045825245236838258e0,
      3.64784832476320460504e0, 5.7694972214606914055e0, 4.6303378461565452959e0, 1.42343711074968357734e0)  # fmt: skip
_D = (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0)  # fmt: skip
_E = (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
      2.9656057182850489123e-1, 1.7848265399172913358e0, 5.4637849111641143699e0, 6.6579046435011037772e0)  # fmt: skip
_F = (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
      1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0)  # fmt: skip

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_LETTERS = tuple(index for index in range(36) if index not in _DASHES)


def uuids(high: Words, low: Words) -> pa.Array:
    """Version 4 UUIDs as text: 122 random bits each."""
    whole = np.empty((len(high), 16), np.uint8)
    whole[:, :8] = high.astype(">u8").view(np.uint8).reshape(-1, 8)
    whole[:, 8:] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    whole[:, 6] = whole[:, 6] & 0x0F | 0x40  # the version
    whole[:, 8] = whole[:, 8] & 0x3F | 0x80  # the variant
    text = np.empty((len(high), 36), np.uint8)
    text[:, list(_DASHES)] = ord("-")
    text[:, _LETTERS[0::2]] = _DIGITS[whole >> 4]
    text[:, _LETTERS[1::2]] = _DIGITS[whole & 0x0F]
    offsets = np.arange(len(high) + 1, dtype=np.int32 if len(high) < 1 << 25 else np.int64) * 36
    kind = pa.string() if offsets.dtype == np.int32 else pa.large_string()
    return pa.Array.from_buffers(kind, len(high), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
