"""The lineage in all places of a log, read for recovery and for tools that only look.

A working directory holds lineage in the stash, a log location in segments. Each place is read by itself; a damaged
segment or line is reported for its place, and the rest of the place is still read. `coordinator/true_history.py`
decides which of all the records are the true history.

A record has its parent's digest, so if no record lacks its parent, the newest record vouches for all epochs up to it.
So a segment whose last digest the stash knows is not read: its name is enough.

The flow may be running meanwhile. A segment that has disappeared was merged, and its epochs are in the next listing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.errors import LogDamaged, StoreError
from holdfast.foundation.retries import relisted
from holdfast.log.replica import Replica
from holdfast.log.stash import read_stash

K = TypeVar("K")


@dataclass(frozen=True)
class Damage:
    """A line of the stash, or a segment (``line`` is 0), that is damaged."""

    path: str
    """The path of the file, relative to its place."""

    why: str
    line: int = 0


@dataclass
class FoundLineage:
    """The lineage that a place holds: the records that were read, and the damage."""

    records: list[Lineage] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    last: int = -1
    """The last epoch of any record, in any history, or of a segment that was not read."""

    def upto(self, history: History) -> int:
        """The last epoch up to which the records hold this history without a gap."""
        held = {record.digest for record in self.records}
        missing = next((record for record in history if record.digest not in held), None)
        if missing is None:
            return history.last
        return -1 if isinstance(missing, Folded) else missing.epoch - 1

    def newest(self, history: History) -> int:
        """The last epoch of this history that has a record here; -1 if none has."""
        true = {lineage.digest for lineage in history}
        return max((record.epoch for record in self.records if record.digest in true), default=-1)


Reader: TypeAlias = Callable[[Collection[str]], FoundLineage]
"""Reads a place. Segments whose last digest is in the argument are not read: their names are enough."""


def read_working(stash: Path) -> FoundLineage:
    """The lineage in the stash of a working directory."""
    records, damaged = read_stash(stash)
    found = [Damage("lineage/log.jsonl", why, number) for number, why in damaged]
    return FoundLineage(records, found, _last(records))


def read_location(replica: Replica, known: Collection[str] = ()) -> FoundLineage:
    """The lineage in a log location. Raises `StoreError` or FileNotFoundError if it cannot be read now."""
    return relisted(lambda: _read_segments(replica, known))


def _read_segments(replica: Replica, known: Collection[str]) -> FoundLineage:
    found = FoundLineage()
    for segment in replica.segments():
        if segment.digest in known:
            found.last = max(found.last, segment.last)
            continue
        try:
            found.records += replica.read_segment(segment)
        except LogDamaged as error:
            found.damaged.append(Damage(f"lineage/{segment.text()}", str(error).rpartition(".jsonl: ")[2]))
    found.last = max(found.last, _last(found.records))
    return found


def read_places(
    working: Mapping[K, Reader], locations: Mapping[K, Reader], unreachable: dict[K, Exception] | None = None
) -> dict[K, FoundLineage]:
    """The lineage in all places. A place that cannot be read is put into ``unreachable``, if that is given; else its
    error is raised."""
    found = {place: read(()) for place, read in working.items()}
    records = records_of(found.values())
    whole = not orphans(records) and not any(each.damaged for each in found.values())
    known = _digests(records) if whole else frozenset()
    for place, read in locations.items():
        try:
            found[place] = read(known)
        except (StoreError, FileNotFoundError) as error:
            if unreachable is None:
                raise
            unreachable[place] = error
    return found


def records_of(found: Iterable[FoundLineage]) -> list[Lineage]:
    """All records that were read."""
    return [record for each in found for record in each.records]


def orphans(records: Sequence[Lineage]) -> list[Lineage]:
    """Records whose parent was not found in any place, in order of epochs. Records up to a base need no parent."""
    known = {record.digest for record in records}
    folded = max((record.epoch for record in records if isinstance(record, Folded)), default=-1)
    lost = [
        record
        for record in records
        if record.parent != GENESIS and record.parent not in known and record.epoch > folded
    ]
    return sorted(lost, key=lambda record: record.epoch)


def _digests(records: Iterable[Lineage]) -> frozenset[str]:
    """The digests of these records, and the digests that bases keep of folded epochs."""
    ends = (digest for record in records if isinstance(record, Folded) for digest in record.ends.values())
    return frozenset({record.digest for record in records} | set(ends))


def _last(records: Iterable[Lineage]) -> int:
    return max((record.epoch for record in records), default=-1)
