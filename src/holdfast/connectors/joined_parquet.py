"""Joining Parquet files into one, without reading a row.

A Parquet file is a magic word, the bytes of its columns, and a footer that says where each column begins. Files with
equal schemas are joined by writing their columns one behind the other and one footer for all of them, in which every
position is moved by as much as its columns were. The cost is that of copying the files; memory is one block, however
large they are.

The footer is a value of Thrift's compact protocol. It is read as a tree of (field, type, value), of which only the
fields named below are changed; all others are written as they were read. pyarrow reads and writes footers, but it
cannot move the positions in one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"PAR1"
_COPIED = 1 << 20
"""Bytes that are copied at a time."""

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Fields of Parquet's format (parquet.thrift).
_SCHEMA, _ROWS, _ROW_GROUPS, _PAIRS = 2, 3, 4, 5
_GROUP_COLUMNS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_OFFSET, _CHUNK_METADATA, _CHUNK_INDEXES = 2, 3, (4, 6)
_COLUMN_OFFSETS = (9, 10, 11, 14)
"""Of a column's metadata: where its data pages, index page, dictionary page and Bloom filter begin."""


@dataclass
class Field:
    """One field of a struct."""

    number: int
    kind: int
    value: Any


@dataclass
class Values:
    """A list or set: the type of its items, and the items."""

    kind: int
    items: list[Any]


Struct = list[Field]


def join(files: Sequence[Path], pairs: Mapping[bytes, bytes]) -> None:
    """Append ``files[1:]`` to the first file, which has all their rows then, and write a footer with these further
    key-value pairs. The other files stay as they are. Raise `ValueError` if a file is not Parquet, or if schemas
    differ. If this raises, the first file is not to be used."""
    with open(files[0], "r+b") as target:
        footer, end = _footer(target, files[0])
        target.truncate(end)
        for path in files[1:]:
            with open(path, "rb") as source:
                other, size = _footer(source, path)
                if _value(other, _SCHEMA) != _value(footer, _SCHEMA):
                    raise ValueError(f"{path} has other columns than {files[0]}")
                target.seek(0, os.SEEK_END)
                moved = target.tell() - len(MAGIC)
                source.seek(len(MAGIC))
                _copy(source, target, size - len(MAGIC))
                _add(footer, other, moved)
        _pair(footer, pairs)
        target.seek(0, os.SEEK_END)
        body = written(footer)
        target.write(body + len(body).to_bytes(4, "little") + MAGIC)


def _footer(file: BinaryIO, path: Path) -> tuple[Struct, int]:
    """The footer of a file, and where it begins."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    begins = size - 8 - int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] != MAGIC or begins < len(MAGIC):
        raise ValueError(f"{path} is no whole Parquet file")
    file.seek(begins)
    return read(file.read(size - 8 - begins)), begins


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    before = source.tell()
    while (left := size - (source.tell() - before)) > 0:
        block = source.read(min(_COPIED, left))
        if not block:
            raise ValueError("a Parquet file became shorter while it was read")
        target.write(block)


def _add(footer: Struct, other: Struct, moved: int) -> None:
    """Add the row groups of ``other``, whose columns were moved by so many bytes."""
    groups = _value(footer, _ROW_GROUPS).items
    for group in _value(other, _ROW_GROUPS).items:
        _move(group, (_GROUP_OFFSET,), moved)
        for field in group:
            if field.number == _GROUP_ORDINAL:
                field.value = len(groups)
        for chunk in _value(group, _GROUP_COLUMNS).items:
            _move(chunk, (_CHUNK_OFFSET, *_CHUNK_INDEXES), moved)
            _move(_value(chunk, _CHUNK_METADATA), _COLUMN_OFFSETS, moved)
        groups.append(group)
    for field in footer:
        if field.number == _ROWS:
            field.value += _value(other, _ROWS)


def _move(struct: Struct, fields: Sequence[int], moved: int) -> None:
    for field in struct:
        if field.number in fields and field.value:  # 0: not there
            field.value += moved


def _pair(footer: Struct, pairs: Mapping[bytes, bytes]) -> None:
    added = [[Field(1, _BINARY, key), Field(2, _BINARY, value)] for key, value in pairs.items()]
    for field in footer:
        if field.number == _PAIRS:
            field.value.items += added
            return
    footer.append(Field(_PAIRS, _LIST, Values(_STRUCT, list(added))))
    footer.sort(key=lambda field: field.number)


def _value(struct: Struct, number: int) -> Any:
    for field in struct:
        if field.number == number:
            return field.value
    raise ValueError(f"a Parquet footer lacks field {number}")


# -- Thrift's compact protocol ---------------------------------------------------------------------------------------


def read(data: bytes) -> Struct:
    """Read a struct. Raise `ValueError` if the bytes are none."""
    try:
        return _read_struct(io.BytesIO(data))
    except (IndexError, KeyError, RecursionError) as error:
        raise ValueError(f"a Parquet footer does not parse: {error!r}") from None


def written(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read_struct(data: io.BytesIO) -> Struct:
    fields: Struct = []
    number = 0
    while (head := data.read(1)[0]) != 0:
        kind, step = head & 15, head >> 4
        number = number + step if step else _signed(_read_number(data))
        fields.append(Field(number, kind, None if kind in (_TRUE, _FALSE) else _read(data, kind)))
    return fields


def _read(data: io.BytesIO, kind: int) -> Any:
    match kind:
        case 1 | 2:
            return data.read(1)[0]  # a Boolean in a list
        case 3:
            return data.read(1)[0]
        case 4 | 5 | 6:
            return _signed(_read_number(data))
        case 7:
            return data.read(8)
        case 8:
            return data.read(_read_number(data))
        case 9 | 10:
            head = data.read(1)[0]
            size = head >> 4 if head >> 4 < 15 else _read_number(data)
            return Values(head & 15, [_read(data, head & 15) for _ in range(size)])
        case 12:
            return _read_struct(data)
        case _:  # Parquet's format has no maps
            raise KeyError(kind)


def _read_number(data: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = data.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    number = 0
    for field in struct:
        step = field.number - number
        number = field.number
        if 0 < step < 16:
            out.append(step << 4 | field.kind)
        else:
            out.append(field.kind)
            _write_signed(out, number)
        if field.kind not in (_TRUE, _FALSE):
            _write(out, field.kind, field.value)
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    match kind:
        case 1 | 2 | 3:
            out.append(value)
        case 4 | 5 | 6:
            _write_signed(out, value)
        case 7:
            out += value
        case 8:
            _write_number(out, len(value))
            out += value
        case 9 | 10:
            if len(value.items) < 15:
                out.append(len(value.items) << 4 | value.kind)
            else:
                out.append(15 << 4 | value.kind)
                _write_number(out, len(value.items))
            for item in value.items:
                _write(out, value.kind, item)
        case _:
            _write_struct(out, value)


def _write_number(out: bytearray, value: int) -> None:
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_signed(out: bytearray, value: int) -> None:
    _write_number(out, value << 1 if value >= 0 else (-value << 1) - 1)
