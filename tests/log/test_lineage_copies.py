"""The lineage of all places: what is read, what is passed over, and that recovery and tools find the same history."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.coordinator.lineage import GENESIS, Lineage, to_lines
from holdfast.errors import LogDamaged, StoreError
from holdfast.inspect.places import Durable, Working, read_history
from holdfast.log.lineage_copies import orphans, read_location, read_places, read_working, records_of
from holdfast.log.location import LocalLocation
from holdfast.log.replica import Replica
from holdfast.runtime.recovery.find_history import find_history
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.unreliable import Unreliable


class Watched(MemoryLocation):
    """Says which blobs were read."""

    def __init__(self, name: str = "copy") -> None:
        super().__init__(name)
        self.seen: list[str] = []

    def read(self, path: str) -> bytes:
        self.seen.append(path.rpartition("/")[2][:25])
        return super().read(path)


def chain(length: int, after: list[Lineage] | None = None, term: int = 1) -> list[Lineage]:
    history = list(after or [])
    for _ in range(length):
        parent = history[-1].digest if history else GENESIS
        history.append(Lineage(len(history), parent, {"s": {"n": len(history)}}, 5, len(history), term))
    return history


def copy_of(history: list[Lineage], *bounds: int) -> Watched:
    """A location with a segment between each two bounds."""
    location = Watched()
    for first, end in pairwise(bounds):
        Replica(location).write_lineage(history[first:end])
    return location


def stash_of(directory: Path, records: list[Lineage]) -> Path:
    stash = directory / "lineage" / "log.jsonl"
    stash.parent.mkdir(parents=True)
    stash.write_bytes(to_lines(records))
    return stash


def test_a_segment_that_the_stash_knows_is_not_read(tmp_path: Path) -> None:
    history = chain(8)
    stash, location = stash_of(tmp_path, history[:5]), copy_of(history, 0, 3, 5, 8)
    found = read_places({0: lambda _: read_working(stash)}, {1: partial(read_location, Replica(location))})
    assert location.seen == ["000000000005-000000000007"]
    assert [(each.last, len(each.records)) for each in found.values()] == [(4, 5), (7, 3)]


@pytest.mark.parametrize("harm", ["damaged", "without its beginning"])
def test_where_the_stash_lost_something_all_segments_are_read(tmp_path: Path, harm: str) -> None:
    history = chain(8)
    stash, location = stash_of(tmp_path, history[:5]), copy_of(history, 0, 3, 5, 8)
    if harm == "damaged":
        stash.write_bytes(stash.read_bytes().replace(b'"epoch":1,', b'"epoch":7,', 1))
    else:
        stash.write_bytes(to_lines(history[2:5]))
    found = read_places({0: lambda _: read_working(stash)}, {1: partial(read_location, Replica(location))})
    assert len(location.seen) == 3 and {record.epoch for record in found[1].records} == set(range(8))
    assert not orphans(records_of(found.values()))


def test_a_place_that_cannot_be_read_is_named_or_is_an_error() -> None:
    away = partial(read_location, Replica(Unreliable(MemoryLocation(), fail_before=1.0)))
    unreachable: dict[str, Exception] = {}
    assert read_places({}, {"a": away}, unreachable) == {} and list(unreachable) == ["a"]
    with pytest.raises(StoreError):
        read_places({}, {"a": away})


def test_recovery_and_tools_find_the_same_history(tmp_path: Path) -> None:
    """A fork, a torn segment in one location, a damaged line in the stash: each part is whole somewhere."""
    shared = chain(4)
    stale, true = chain(5, after=shared, term=1), chain(3, after=shared, term=2)
    stash = stash_of(tmp_path, stale[:6])
    stash.write_bytes(stash.read_bytes().replace(b'"epoch":2,', b'"epoch":9,', 1))
    first, second = LocalLocation(tmp_path / "first"), LocalLocation(tmp_path / "second")
    for location, segments in ((first, (true[:4], true[4:6])), (second, (true[:2], true[2:], stale[6:]))):
        for segment in segments:
            Replica(location).write_lineage(segment)
    torn = next((tmp_path / "first" / "lineage").glob("000000000004-*"))
    torn.write_bytes(torn.read_bytes()[:-20])
    seen, _ = read_history([Working(LocalLocation(tmp_path)), Durable(first), Durable(second)])
    recovery = RecoveryRecord()
    replicas = {"first": Replica(first), "second": Replica(second)}
    recovered, _ = find_history(stash, replicas, [], tmp_path / "begun.jsonl", [], {}, recovery)
    assert list(recovered) == list(seen) == true
    assert recovery.lineage == {"local": 5, "first": 3, "second": 8}
    assert len(recovery.damaged) == 2 and str(tmp_path / "first") in recovery.damaged[0]


def test_a_line_that_only_the_stash_had_is_an_error_for_both_and_one_with_a_copy_is_not(tmp_path: Path) -> None:
    history = chain(6)
    stash = stash_of(tmp_path, history)
    stash.write_bytes(stash.read_bytes().replace(b'"epoch":4,', b'"epoch":9,', 1))
    location, begun = LocalLocation(tmp_path / "copy"), tmp_path / "begun.jsonl"
    places = [Working(LocalLocation(tmp_path)), Durable(location)]
    Replica(location).write_lineage(history[:4])
    with pytest.raises(LogDamaged, match="line 5"):
        read_history(places)
    with pytest.raises(LogDamaged, match="line 5"):
        find_history(stash, {"copy": Replica(location)}, [], begun, [], {}, RecoveryRecord())
    Replica(location).write_lineage(history[4:5])
    assert list(read_history(places)[0]) == history
    assert list(find_history(stash, {"copy": Replica(location)}, [], begun, [], {}, RecoveryRecord())[0]) == history
