"""Epochs that were begun: a second local copy of the lineage, in a file that is independent of the stash.

A line is appended before the first layer of its epoch is written. So layers of an epoch that is not in the stash can be
told from garbage, and if a driver died after writing all layers of an epoch, the epoch counts
(`runtime/recovery/find_history.py`). Lines that the stash lost are found here, too. Layers themselves carry no lineage:
the lineage of an epoch that takes 20,000 files is written twice, here and in the stash, and not to each of its layers.

The file holds the epochs that no log location has yet. It is written again, without other epochs, when it has grown and
when a flow is opened. It is not synced: the layers that it is for are not synced either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.coordinator.lineage import Lineage, to_lines
from holdfast.errors import LogError
from holdfast.foundation.atomic_files import read_file, replace_file

FILE = "begun.jsonl"
_GROWN = 256
"""The number of lines beyond the needed ones at which the file is written again."""


def read_begun(path: Path) -> list[Lineage]:
    """The epochs that were begun and not abandoned, in order. Damaged lines are skipped."""
    try:
        text = read_file(path)
    except FileNotFoundError:
        return []
    found: dict[str, Lineage] = {}
    for line in text.split(b"\n"):
        try:
            said = json.loads(line)
            if isinstance(said, dict) and "abandoned" in said:
                found.pop(said["abandoned"], None)
                continue
            lineage = Lineage.from_json(line.decode())
        except ValueError:
            continue
        found[lineage.digest] = lineage
    return sorted(found.values(), key=lambda lineage: lineage.epoch)


class Begun:
    """The file, open for appending."""

    def __init__(self, path: Path, known: Sequence[Lineage]) -> None:
        """``known``: complete epochs that no location has. A new file is always made: another driver that still has the
        old file open appends to a file that is never read."""
        self.path = path
        self._file = -1
        self._start(known)

    def add(self, lineage: Lineage) -> None:
        """Append the lineage of an epoch that begins, or whose answers are known now. Raises `LogError`."""
        self._append(lineage.to_json().encode() + b"\n")
        self._lines += 1

    def abandon(self, lineage: Lineage) -> None:
        """Note that an epoch that was begun will not be complete. Raises `LogError`."""
        self._append(json.dumps({"abandoned": lineage.digest}).encode() + b"\n")

    def grown(self, needed: int) -> bool:
        """Whether the file has many more lines than the ``needed`` epochs."""
        return self._lines > 2 * needed + _GROWN

    def shorten(self, known: Sequence[Lineage]) -> None:
        """Write the file again with these complete epochs alone."""
        self._start(known)

    def _start(self, known: Sequence[Lineage]) -> None:
        try:
            replace_file(self.path, to_lines(known))
            self.close()
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise self._failed(error) from error
        self._lines = len(known)

    def _append(self, line: bytes) -> None:
        try:
            size = os.fstat(self._file).st_size
            if os.write(self._file, line) != len(line):
                os.ftruncate(self._file, size)
                raise LogError(f"lineage {self.path}: the disk is full", path=str(self.path))
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> LogError:
        return LogError(f"lineage {self.path}: {error.strerror}", path=str(self.path), errno=error.errno)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
