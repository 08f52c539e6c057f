"""The header of an Avro file: its schema, read on the driver before Spark reads the rows.

The header is a magic number, a map of texts to bytes (``avro.schema`` among them), and sixteen bytes that end each
block. It says which columns a file has. So a column that the writer renamed raises an error; Spark would silently read
a column that an Avro file lacks as NULL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, BinaryIO

from holdfast.errors import BadFile

_MAGIC = b"Obj\x01"
_SYNC = 16
_LONGEST = 64 << 20
"""Bytes: a bound on the lengths in a header. A larger length is damage, and is not read into memory."""


@dataclass(frozen=True)
class AvroHeader:
    """The facts that the driver keeps of a header."""

    columns: tuple[str, ...]
    """The names of the fields of the rows, which are records."""

    length: int
    """The bytes of the header. A file of this length has no rows."""


def read_header(file: BinaryIO, path: str) -> AvroHeader:
    """Read the header of the file at ``path``; ``file`` is open at its start. Raises `BadFile` if it has none."""
    try:
        if _exactly(file, len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        metadata = _metadata(file)
        _exactly(file, _SYNC)
        schema = json.loads(metadata["avro.schema"])
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise ValueError("its rows are not records")
        return AvroHeader(tuple(field["name"] for field in schema["fields"]), file.tell())
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error) if type(error) is ValueError else "its header has no schema"
        raise BadFile(
            f"file {path!r}: it does not read as Avro ({reason}); is it truncated?", path=path, reason=reason
        ) from None


def _metadata(file: BinaryIO) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while count := _long(file):
        if count < 0:  # then the size of the block follows, for readers that skip the block
            count = -count
            _long(file)
        for _ in range(count):
            key = _exactly(file, _long(file)).decode()
            found[key] = _exactly(file, _long(file))
    return found


def _long(file: BinaryIO) -> int:
    """A whole number as Avro writes it: seven bits per byte, lowest first, the sign in the lowest bit."""
    found = shift = 0
    while True:
        byte = _exactly(file, 1)[0]
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
        if shift > 63:
            raise ValueError("a number in its header is too long")


def _exactly(file: BinaryIO, length: int) -> bytes:
    if not 0 <= length <= _LONGEST:
        raise ValueError("a length in its header is out of range")
    found = file.read(length)
    if len(found) < length:
        raise ValueError("its header ends early")
    return found
