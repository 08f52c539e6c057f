"""The lineage log: one line of JSON per complete epoch, in order.

A line is appended with a single write when its epoch is complete. A torn last line (the process died in the middle of
the write) is an epoch that never completed, and is cut off; damage anywhere else is an error.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.errors import LogDamaged, LogError


def read_lineage(path: Path) -> list[Lineage]:
    """All complete epochs, checked: digests, parents, numbers."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = text.split(b"\n")
    history: list[Lineage] = []
    parent = GENESIS
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            lineage = Lineage.from_json(line.decode())
            if lineage.epoch != len(history) or lineage.parent != parent:
                raise ValueError(f"epoch {lineage.epoch} does not follow epoch {len(history) - 1}")
        except ValueError as error:
            if number == len(lines) - 1:
                break
            raise LogDamaged(f"lineage {path}: line {number + 1}: {error}", path=str(path), line=number + 1) from None
        history.append(lineage)
        parent = lineage.digest
    return history


class LineageLog:
    """The log, open for appending. Opening it cuts off a torn last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = read_lineage(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        intact = sum(len(lineage.to_json().encode()) + 1 for lineage in self.history)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.ftruncate(self._file, min(intact, os.fstat(self._file).st_size))
        os.lseek(self._file, 0, os.SEEK_END)

    def append(self, lineage: Lineage) -> None:
        line = lineage.to_json().encode() + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise LogError(f"lineage {self.path}: {error.strerror}", path=str(self.path)) from error
        if written != len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise LogError(f"lineage {self.path}: the disk is full", path=str(self.path))
        self.history.append(lineage)

    def close(self) -> None:
        os.close(self._file)
