"""Base85 as `base64.b85encode` writes it, for many bytes: vectorised with NumPy instead of a loop."""

from __future__ import annotations

import string

import numpy as np

_ALPHABET = np.frombuffer(
    (string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~").encode(), np.uint8
)
_NONE = 255
_DIGITS = np.full(256, _NONE, np.uint8)
_DIGITS[_ALPHABET] = np.arange(85)
_POWERS = np.array([85**4, 85**3, 85**2, 85, 1], np.uint64)


def encode(data: bytes) -> str:
    """Return the bytes as text: four bytes become five characters."""
    missing = -len(data) % 4
    words = np.frombuffer(data + bytes(missing), ">u4").astype(np.uint64)
    text: bytes = _ALPHABET[words[:, None] // _POWERS % np.uint64(85)].tobytes()
    return text[: len(text) - missing].decode()


def decode(text: str) -> bytes:
    """Return the bytes that `encode` was given. Raise ValueError if the text cannot come from `encode`."""
    encoded = text.encode()
    missing = -len(encoded) % 5
    digits = _DIGITS[np.frombuffer(encoded + b"~" * missing, np.uint8)]
    words = digits.reshape(-1, 5).astype(np.uint64) @ _POWERS
    if (digits == _NONE).any() or (words >> np.uint64(32)).any():
        raise ValueError("this is not Base85")
    data: bytes = words.astype(">u4").tobytes()
    return data[: len(data) - missing]
