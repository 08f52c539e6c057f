"""The data files of a changelog: their names, and whether one is whole.

``epoch-000000000042.parquet`` holds the rows of one epoch; ``epochs-000000000000-000000000063.parquet`` holds the rows
of a range of epochs that were put together. Ranges are aligned, so two files have no epoch in common, or one of them
holds all epochs of the other. The smaller file is then a leftover, and is not read (`data_files`).

A file is **torn** if its length or its content proves it: it is shorter than any Parquet file, its footer does not
parse, or the checksum of a page does not match. An error of the file system (EACCES, EMFILE, EIO) proves nothing: it is
raised. A power cut tears only files that had not reached the disk. So files that were written in the `RECENT` seconds
before the last write are read whole at every opening; older files are, until they are verified
(`changelog_verification.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

RECENT = 300.0
_NAME = re.compile(r"epoch-(\d{12})\.parquet|epochs-(\d{12})-(\d{12})\.parquet")
_LEAST = 12
"""Bytes: the length of the shortest Parquet file, which is two magic words and the length of the footer."""


@dataclass(frozen=True, order=True)
class DataFile:
    """A file with the rows of epochs ``first`` … ``last``."""

    first: int
    last: int

    @property
    def name(self) -> str:
        if self.first == self.last:
            return f"epoch-{self.first:012d}.parquet"
        return f"epochs-{self.first:012d}-{self.last:012d}.parquet"

    def holds(self, other: DataFile) -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


def listed(path: Path) -> list[DataFile]:
    """All data files in a directory, in order of their epochs."""
    found = [match for name in os.listdir(path) if (match := _NAME.fullmatch(name))]
    return sorted(DataFile(int(match[1] or match[2]), int(match[1] or match[3])) for match in found)


def leftover(files: Iterable[DataFile]) -> list[DataFile]:
    """The files whose epochs another one of ``files`` holds."""
    files = list(files)
    ranges = [each for each in files if each.first < each.last]
    return [each for each in files if any(other.holds(each) for other in ranges)]


def data_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files whose rows, all together, are a changelog: a consumer reads these.

    While files are put together, a listing may miss some files or show both the small and the large ones. So the
    directory is listed until two listings in a row are equal."""
    directory = Path(path)
    seen: list[DataFile] | None = None
    while True:
        files = listed(directory)
        if files == seen:
            gone = set(leftover(files))
            return [directory / each.name for each in files if each not in gone]
        seen = files


def is_torn(path: Path, whole: bool) -> bool:
    """Whether a file is provably damaged. With ``whole`` all of the file is read; without it only the length is looked
    at. Raises OSError if the file cannot be read."""
    if path.stat().st_size < _LEAST:
        return True
    if not whole:
        return False
    # The file is parsed from memory: so an error of the parser is about the content, never one of the file system.
    data = pa.py_buffer(path.read_bytes())
    try:
        with pq.ParquetFile(data, page_checksum_verification=True) as file:
            return bool(file.read().num_rows != file.metadata.num_rows)
    except (pa.ArrowInvalid, OSError):
        return True


def metadata_of(path: Path) -> dict[bytes, bytes] | None:
    """The key-value metadata of a file; None if its footer proves it torn. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _LEAST:
            return None
        file.seek(size - 8)
        length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic != b"PAR1" or length + _LEAST > size:
            return None
        file.seek(size - 8 - length)
        footer = b"PAR1" + file.read(length + 8)
    try:
        return dict(pq.read_metadata(pa.BufferReader(footer)).metadata or {})
    except (pa.ArrowInvalid, OSError):
        return None


def recent(path: Path, files: Iterable[DataFile]) -> set[DataFile]:
    """The files that were written at most `RECENT` seconds before the newest of them."""
    times = {}
    for each in files:
        try:
            times[each] = (path / each.name).stat().st_mtime
        except FileNotFoundError:
            continue  # its consumer has removed it
    horizon = max(times.values(), default=0.0) - RECENT
    return {each for each, written in times.items() if written >= horizon}
