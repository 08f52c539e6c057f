"""Input files that cost next to nothing to make while others are timed.

A few files are made beforehand, and kept in memory. Each file that is given is a copy of one of them with a number of
its own in the footer: sources pass over a file that they took before, whatever its name.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import write_rows

_NUMBER = b"number-%012d"
_KINDS = 32
"""How many files are made."""


class ReadyFiles:
    """One file after the other for a directory, of ``rows`` random keys each."""

    def __init__(self, directory: Path, keys: int, rows: int, seed: int = 1) -> None:
        self.directory = directory
        self._keys = keys
        self._random = np.random.default_rng(seed)
        self._made = [self._file(rows) for _ in range(_KINDS)]
        self._count = 0
        self._prepared: Path | None = None
        self._placed: Path | None = None
        self._taken: deque[tuple[int, Path]] = deque()

    def _file(self, rows: int) -> bytes:
        keys, values = self._random.integers(0, self._keys, rows), self._random.integers(0, 1000, rows)
        table = pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.int64())})
        file = BytesIO()
        with pq.ParquetWriter(file, table.schema) as writer:
            writer.write_table(table, row_group_size=max(1, (rows + 1) // 2))
            writer.add_key_value_metadata({"number": _NUMBER % 0})
        made = file.getvalue()
        assert made.count(_NUMBER % 0) == 1
        return made

    def put_every_key(self) -> None:
        """Put a file in place that has every key once."""
        write_rows(self.directory / "every-key.parquet", self._random.permutation(self._keys), self._random)

    def prepare(self) -> None:
        """Write the next file, under a name that sources do not see."""
        content = self._made[self._count % _KINDS].replace(_NUMBER % 0, _NUMBER % self._count)
        self._prepared = self.directory / f".{self._count:012d}.parquet"
        self._prepared.write_bytes(content)
        self._count += 1

    def put(self) -> None:
        """Put the next file in place."""
        if self._prepared is None:
            self.prepare()
        assert self._prepared is not None
        self._placed = self._prepared.rename(self.directory / self._prepared.name[1:])
        self._prepared = None

    def taken(self, epoch: int) -> None:
        """Note that an epoch took the file that was put in place last."""
        assert self._placed is not None
        self._taken.append((epoch, self._placed))

    def forget_all(self) -> None:
        """Remove all files that epochs took."""
        self.forget(self._taken[-1][0] if self._taken else -1)

    def forget(self, safe: int) -> None:
        """Remove the files that epochs up to this one took, as users do with input that they need no more."""
        while self._taken and self._taken[0][0] <= safe:
            self._taken.popleft()[1].unlink()
