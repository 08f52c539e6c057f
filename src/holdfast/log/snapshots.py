"""Named snapshots of a log: an epoch with a name, in a file in the working directory and in each location.

    snapshots/<name>.json      {"name", "epoch", "digest", "flow", "traces", "collections"}

An epoch is a consistent cut of the whole flow: all traces as of it, and the lineage up to it with the offers that were
taken from each source; any other input is in flight. So taking a snapshot costs only the file. The snapshot holds back
compaction and folding (`coordinator/copy_rounds.py`): the epoch stays readable in every trace until the snapshot is
removed.

A snapshot exists if any place has its file, which is written whole or not at all.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import LogDamaged
from holdfast.foundation.atomic_files import replace_file
from holdfast.log import header
from holdfast.log.location import Location

DIRECTORY = "snapshots"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The allowed names: a name becomes the name of a file."""


@dataclass(frozen=True)
class NamedEpoch:
    """A snapshot: the content of its file."""

    name: str
    epoch: int
    digest: str
    flow: str
    traces: tuple[str, ...]
    """The traces of the flow when the snapshot was taken."""

    collections: dict[str, Any] = field(repr=False, compare=False, default_factory=dict)
    """The content of ``collections.json`` when the snapshot was taken."""

    def to_bytes(self) -> bytes:
        return header.to_text(asdict(self)).encode()

    @staticmethod
    def from_bytes(data: bytes, place: str, path: str) -> NamedEpoch:
        said = header.from_text(data, place, path)
        try:
            return NamedEpoch(**{**said, "traces": tuple(said["traces"])})
        except (KeyError, TypeError) as error:
            raise LogDamaged(f"{place}/{path}: it is no snapshot: {error}", path=path) from None


def path_of(name: str) -> str:
    return f"{DIRECTORY}/{name}.json"


def read_snapshots(location: Location) -> dict[str, NamedEpoch]:
    """The snapshots that a location has. A file that does not parse is left out."""
    found = {}
    for entry in location.list(DIRECTORY):
        if entry.name.endswith(".json") and not entry.name.startswith("."):
            path = f"{DIRECTORY}/{entry.name}"
            with suppress(FileNotFoundError, LogDamaged):
                snapshot = NamedEpoch.from_bytes(location.read(path), location.uri, path)
                found[snapshot.name] = snapshot
    return found


def read_local(directory: Path) -> dict[str, NamedEpoch]:
    """The snapshots that a working directory has. A file that does not parse is left out."""
    found = {}
    for path in sorted((directory / DIRECTORY).glob("[!.]*.json")):
        with suppress(FileNotFoundError, LogDamaged):
            snapshot = NamedEpoch.from_bytes(path.read_bytes(), str(directory), str(path))
            found[snapshot.name] = snapshot
    return found


def write_local(directory: Path, snapshot: NamedEpoch) -> None:
    (directory / DIRECTORY).mkdir(exist_ok=True)
    replace_file(directory / path_of(snapshot.name), snapshot.to_bytes())


def remove_local(directory: Path, name: str) -> None:
    (directory / path_of(name)).unlink(missing_ok=True)
