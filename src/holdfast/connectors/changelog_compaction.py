"""Putting the small files of a changelog together, so that there are few however many epochs there were.

With a factor N, epochs [i·N^k, (i+1)·N^k) may be one file, for every i and k ≥ 1. Ranges of that kind are nested or
disjoint. So two drivers that put files together at once cannot write rows twice: whatever they wrote, a file whose
epochs another one holds is left over (`changelog_files.leftover`). After E epochs there are fewer than N files per
level and log_N(E) levels, beside the newest ones; a row is written again at most once per level. A range that would
become larger than `LARGEST` stays as it is.

The order is what makes it safe: write under a hidden name, sync, read back, link, sync the directory, and only then
remove the small files. A crash before the link leaves nothing; after it, opening removes what is left over.
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
"""Writes a file with these rows under a hidden name; given the metadata of the newest one that is in it."""


def plan(files: Sequence[DataFile], factor: int, upto: int) -> list[tuple[DataFile, list[DataFile]]]:
    """What to put together, of epochs up to ``upto``: the largest ranges that hold two files or more."""
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
            if len(some) > 1:
                found.append((DataFile(number * size, (number + 1) * size - 1), some))
        taken = {each for _, some in found for each in some}
        left = [each for each in left if each not in taken]
        size //= factor
    return sorted(found)


def put_together(path: Path, factor: int, upto: int, write: Write) -> int:
    """Put files of a changelog together; how many that were. OSError as the system says it."""
    count = 0
    for target, some in plan(listed(path), factor, upto):
        if sum((path / each.name).stat().st_size for each in some) > LARGEST:
            continue
        if any(is_torn(path / each.name, whole=True) for each in some):
            continue  # it is restored first
        _replace(path, target, some, write)
        count += len(some)
    return count


def _replace(path: Path, target: DataFile, some: Sequence[DataFile], write: Write) -> None:
    tables = [pq.ParquetFile(pa.py_buffer((path / each.name).read_bytes())).read() for each in some]
    rows = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
    hidden = write(target, rows, metadata_of(path / some[-1].name) or {})
    # Not `create_file`: it is read back before it gets its name.
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
