"""The branches of a log, looked at, made and removed without Spark, while nobody runs the flow.

Whoever changes something takes the working directory's lock, as a driver does: `LogBusy` while the flow runs (then ask
it: ``flow.branch``). State cannot be made again here: all of it must be readable as of the root.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.errors import DeclarationError, EpochUnavailable, LogError, UnknownName
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.inspect.places import Durable, Named, Place, Working, declared, live_traces, open_places, read_history
from holdfast.log import branches
from holdfast.log.branch_making import BranchMaking, is_readable
from holdfast.log.branches import BranchRecord
from holdfast.log.linked_layers import link_traces
from holdfast.log.snapshots import NAME
from holdfast.log.working_directory import LogDirectory


def list_branches(named: Sequence[Named]) -> list[dict[str, Any]]:
    """The branches of a log, by root, with the bytes that each has of its own: files that no other log has, too."""
    _, places = open_places(named)
    return [
        {
            "name": each.name,
            "root": each.root,
            "digest": each.digest,
            "created": each.created,
            "bytes": sum(_own_bytes(place, each.name) for place in _apart(places)),
            "approximate": each.approximate,
        }
        for each in sorted(_known(places).values(), key=lambda each: (each.root, each.name))
    ]


def _known(places: Sequence[Place]) -> dict[str, BranchRecord]:
    found: dict[str, BranchRecord] = {}
    for place in places:
        found |= branches.read_branches(place.location)
    return found


def _apart(places: Sequence[Place]) -> list[Place]:
    """One place for each address."""
    return list({place.uri: place for place in reversed(places)}.values())


def _own_bytes(place: Place, name: str) -> int:
    path = place.location.local()
    return branches.blobs(place.location, name) if path is None else branches.local_bytes(path, name)


def create_branch(named: Sequence[Named], name: str, at: int | None = None) -> BranchRecord:
    """Make a branch as of an epoch, by default the last."""
    with _locked(named) as (flow, working, places):
        known = _known(places)
        if name in known:
            raise DeclarationError(f"log {working.uri}: there is a branch '{name}' already", branch=name)
        if not NAME.fullmatch(name) or name == "main":
            raise DeclarationError(
                f"log {working.uri}: a branch's name is made of letters, digits, '.', '_' and '-', and is not 'main'; "
                f"found {name!r}",
                branch=name,
            )
        history, _ = read_history(places)
        root = history.last if at is None else at
        if not history.first <= root <= history.last or root < 0:
            raise EpochUnavailable(
                f"log {working.uri}: no branch can begin with epoch {root}; those that can are {history.first} to "
                f"{history.last}",
                epoch=root,
            )
        kept, digests = declared(places), history.digests()
        shared = set(live_traces([working], kept))
        needed = [working.layers(trace) for trace in shared]
        able = [
            each for each in range(root, history.last) if all(is_readable(names, digests, each) for names in needed)
        ]
        if root < history.last and root not in able:
            earliest = min(able, default=history.last)
            raise EpochUnavailable(
                f"log {working.uri}: state as of epoch {root} was compacted; the earliest epoch from which a branch "
                f"can be made here is {earliest}. The flow itself (flow.branch) can make state again",
                epoch=root,
                earliest=earliest,
            )
        # A driver that closes a flow tells its sources that they may forget all that is safe.
        record = BranchRecord(name, flow, root, history[root].digest, time.time(), history.last)
        making = BranchMaking(record, history, shared, kept)
        traces = branches.directory_of(working.directory, name) / "traces"
        making.work_in(working.directory, partial(link_traces, working.layers_directory, traces))
        for place in places:
            if isinstance(place, Durable):
                making.refer_in(place.location)
                place.location.write(branches.path_of(name), record.to_bytes())
        branches.write_local(working.directory, record)
        return record


def remove_branch(named: Sequence[Named], name: str) -> None:
    """Remove a branch with all that it alone has."""
    with _locked(named) as (_, working, places):
        known = _known(places)
        if name not in known:
            raise UnknownName(f"log {working.uri}: branch '{name}' not found{did_you_mean(name, known)}", name=name)
        own = branches.directory_of(working.directory, name)
        LogDirectory.open(own, exclusive=True).close()  # nobody runs the branch
        for place in places:
            place.location.remove(branches.path_of(name))
        for place in places:
            if isinstance(place, Durable):
                branches.remove_from(place.location, name)
        branches.remove_local(working.directory, name)


@contextmanager
def _locked(named: Sequence[Named]) -> Iterator[tuple[str, Working, list[Place]]]:
    """The flow, the working directory and all places of a log, which nobody else drives meanwhile."""
    flow, places = open_places(named)
    working = next((place for place in places if isinstance(place, Working)), None)
    if working is None:
        raise LogError(f"log {places[0].uri}: give the working directory, and all log locations", path=places[0].uri)
    if (working.directory / "members.json").exists():
        raise LogError(
            f"log {working.uri}: members of a cluster have its layers; make and remove branches with the flow itself "
            "(flow.branch, flow.remove_branch)",
            path=working.uri,
        )
    _check_all_given(places)
    lock = LogDirectory.open(working.directory, exclusive=True)
    try:
        yield flow, working, places
    finally:
        lock.close()


def _check_all_given(places: Sequence[Place]) -> None:
    """LogError if the log has locations that were not given: a branch is to be in all of them, or in none."""
    rosters = {
        place.replica.identity: roster
        for place in places
        if isinstance(place, Durable) and (roster := place.replica.read_roster()) is not None
    }
    if not rosters:
        return
    newest = max(rosters.values(), key=lambda roster: roster.version)
    missing = [uri for identity, uri in newest.locations.items() if identity not in rosters]
    if missing:
        raise LogError(
            f"log {places[0].uri}: it has further locations; give {', '.join(missing)}, too", missing=missing
        )
