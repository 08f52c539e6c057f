"""Putting the small files of a changelog together, so that there are few however many epochs there were.

With a factor N, epochs [i·N^k, (i+1)·N^k) may be one file, for every i and k ≥ 1. Such ranges are nested or disjoint.
So two drivers that put files together at once cannot deliver rows twice: a file whose epochs another file holds is a
leftover, and is not read (`changelog_files.leftover`). After E epochs there are log_N(E) levels with fewer than N files
each, and the newest files; a row is written again at most once per level. Files that together would be larger than
`LARGEST` stay as they are.

The order of the steps makes it safe: write under a hidden name, sync, read back, link, sync the directory, and only
then remove the small files. A crash before the link leaves only a hidden file; after a later crash, the next opening
removes the small files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.changelog_files import DataFile, is_torn, leftover, listed, metadata_of
from holdfast.foundation.atomic_files import sync_directory, sync_file

LARGEST = 256 << 20
"""Bytes."""

Write = Callable[[DataFile, pa.Table, dict[bytes, bytes]], Path]
"""Writes a file with these rows under a hidden name, and returns its path. The third argument is the metadata of the
newest file that goes into it."""


def plan(
    files: Sequence[DataFile], factor: int, upto: int, size_of: Callable[[DataFile], int]
) -> list[tuple[DataFile, list[DataFile]]]:
    """The files to put together, of epochs up to ``upto``: the new file and its parts, for the largest ranges that hold
    at least two files and whose files together (``size_of``, in bytes) are not larger than `LARGEST`."""
    gone = set(leftover(files))
    left = [each for each in files if each not in gone]
    found: list[tuple[DataFile, list[DataFile]]] = []
    size = factor
    while size * factor <= upto + 1:
        size *= factor
    while size >= factor:
        ranges: dict[int, list[DataFile]] = {}
        for each in left:
            if each.first // size == each.last // size and (each.first // size + 1) * size - 1 <= upto:
                ranges.setdefault(each.first // size, []).append(each)
        for number, some in ranges.items():
            if len(some) > 1 and sum(map(size_of, some)) <= LARGEST:
                found.append((DataFile(number * size, (number + 1) * size - 1), some))
        taken = {each for _, some in found for each in some}
        left = [each for each in left if each not in taken]
        size //= factor
    return sorted(found)


def put_together(path: Path, factor: int, upto: int, write: Write) -> int:
    """Put files of a changelog together, and return how many small files went into large ones. Lets OSError through."""
    count = 0
    for target, some in plan(listed(path), factor, upto, lambda each: (path / each.name).stat().st_size):
        if any(is_torn(path / each.name, whole=True) for each in some):
            continue  # the torn file is restored first
        _replace(path, target, some, write)
        count += len(some)
    return count


def _replace(path: Path, target: DataFile, some: Sequence[DataFile], write: Write) -> None:
    tables = [pq.ParquetFile(pa.py_buffer((path / each.name).read_bytes())).read() for each in some]
    rows = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
    hidden = write(target, rows, metadata_of(path / some[-1].name) or {})
    # Not `create_file`: the file is read back before it gets its name.
    try:
        sync_file(hidden)
        if is_torn(hidden, whole=True) or pq.read_metadata(hidden).num_rows != rows.num_rows:
            raise OSError(f"{hidden} does not hold what was written")
        with suppress(FileExistsError):  # another driver did the same
            os.link(hidden, path / target.name)
        sync_directory(path)
    finally:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
    for each in some:
        (path / each.name).unlink(missing_ok=True)
