"""The branches of a log, listed, made and removed without Spark, while no driver runs the flow.

Making and removing a branch takes the working directory's lock, as a driver does, and raises `LogBusy` while the flow
runs (then use ``flow.branch``). Lost state cannot be computed again here: all of it must be readable as of the root.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from holdfast.coordinator.copy_plan import safe_point
from holdfast.coordinator.history import History
from holdfast.errors import (
    DeclarationError,
    EpochUnavailable,
    HoldfastError,
    LogDamaged,
    LogError,
    StoreError,
    UnknownName,
)
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.foundation.retries import relisted
from holdfast.inspect.places import (
    Durable,
    Named,
    Place,
    Working,
    declared,
    holding_of,
    live_traces,
    open_places,
    read_history,
)
from holdfast.log import branches
from holdfast.log.branch_location import Reference
from holdfast.log.branch_making import BranchMaking, is_readable
from holdfast.log.branch_space import only_referred, shared_once
from holdfast.log.branches import BranchRecord
from holdfast.log.linked_layers import link_traces
from holdfast.log.working_directory import LogDirectory


def list_branches(named: Sequence[Named]) -> list[dict[str, Any]]:
    """The branches of a log, in order of their roots, with the bytes that removing each would free in these places."""
    _, places = open_places(named)
    known = sorted(_known(places).values(), key=lambda each: (each.root, each.name))
    held: Mapping[Durable, Mapping[str, list[Reference]]] = {}
    with suppress(HoldfastError):  # a damaged log still has its branches, but their sizes are not known
        held = relisted(lambda: _held_layers(places)) if known else {}
    return [
        {
            "name": each.name,
            "root": each.root,
            "digest": each.digest,
            "created": each.created,
            "bytes": sum(_own_bytes(place, each.name) for place in _apart(places))
            + sum(one.size for found in held.values() for one in found.get(each.name, ())),
            "approximate": each.approximate,
        }
        for each in known
    ]


def _known(places: Sequence[Place]) -> dict[str, BranchRecord]:
    """The existing branches. A working directory is not trusted if another driver has claimed the log since."""
    claimed = _claimed(places)
    found: dict[str, BranchRecord] = {}
    for place in places:
        if not isinstance(place, Working) or claimed <= branches.noted_term(place.directory):
            found |= branches.read_branches(place.location)
    return found


def _claimed(places: Sequence[Place]) -> int:
    """The term of the last driver; 0 if no place has a claim."""
    return max(
        (claim.term for place in places if isinstance(place, Durable) for claim in place.replica.claims()), default=0
    )


def _damaged(places: Sequence[Place], known: Collection[str]) -> dict[str, LogDamaged]:
    found: dict[str, LogDamaged] = {}
    for place in places:
        found |= branches.damaged(place.location, known)
    return found


def _apart(places: Sequence[Place]) -> list[Place]:
    """One place for each address."""
    return list({place.uri: place for place in reversed(places)}.values())


def _own_bytes(place: Place, name: str) -> int:
    path = place.location.local()
    return branches.blobs(place.location, name) if path is None else branches.local_bytes(path, name)


def _held_layers(places: Sequence[Place]) -> dict[Durable, dict[str, list[Reference]]]:
    """Log location → branch → the layers that are kept there only for that branch."""
    replicas = [place for place in places if isinstance(place, Durable)]
    traces = live_traces(places, declared(places))
    # Layers are listed before lineage is read, so that the lineage has all epochs of the listed layers.
    listed = {place: {trace: place.layers(trace) for trace in traces} for place in replicas}
    history, lineage = read_history(places)
    holdings = {place: holding_of(layers, history, lineage[place]) for place, layers in listed.items()}
    last = history.last
    live = min(safe_point(list(holdings.values()), traces, last, 1), last - 1)

    found: dict[Durable, dict[str, list[Reference]]] = {}
    for place in replicas:
        with suppress(StoreError):
            found[place] = {
                name: only_referred(references, holdings[place].layers, last, live)
                for name, references in shared_once(place.location).items()
            }
    return found


def create_branch(named: Sequence[Named], name: str, at: int | None = None) -> BranchRecord:
    """Make a branch as of an epoch, by default the last. Raises `LogBusy` while the flow runs, `EpochUnavailable` if
    the state is not readable as of that epoch, and `LogError` if it is in no log location."""
    with _locked(named) as (flow, working, places):
        known = _known(places)
        if name in known:
            raise DeclarationError(f"log {working.uri}: there is a branch '{name}' already", branch=name)
        damaged = _damaged(places, known)
        if name in damaged:
            raise damaged[name]
        if (why := branches.why_not(name, [*known, *damaged])) is not None:
            raise DeclarationError(f"log {working.uri}: {why}", branch=name)
        history, _ = read_history(places)
        root = history.last if at is None else at
        if not history.first <= root <= history.last or root < 0:
            raise EpochUnavailable(
                f"log {working.uri}: no branch can begin with epoch {root}; those that can are {history.first} to "
                f"{history.last}",
                epoch=root,
            )
        kept = declared(places)
        shared = set(live_traces([working], kept))
        _check_readable(working, shared, history, root)
        _check_safe(places, shared, history, root)
        # A driver that closes a flow tells its sources that they may forget all input of safe epochs.
        record = BranchRecord(
            name, flow, root, history[root].digest, time.time(), history.last, max(_claimed(places), history[-1].term)
        )
        for place in places:
            if isinstance(place, Durable):
                branches.remove_from(place.location, name)  # files of an earlier branch of that name
        making = BranchMaking(record, history, shared, kept)
        traces = branches.directory_of(working.directory, name) / "traces"
        durable = [place for place in places if isinstance(place, Durable)]
        try:
            making.work_in(working.directory, partial(link_traces, working.layers_directory, traces))
            for place in durable:
                making.refer_in(place.location)
            for place in durable:
                place.location.write(branches.path_of(name), record.to_bytes())
            branches.write_local(working.directory, record)
        except BaseException:
            _remove(places, working, name, suppress(LogError, OSError))
            raise
        return record


def _check_readable(working: Working, shared: Collection[str], history: History, root: int) -> None:
    """Raise `EpochUnavailable` unless the working directory has all state as of the root."""
    digests = history.digests()
    needed = [working.layers(trace) for trace in shared]
    if all(is_readable(names, digests, root) for names in needed):
        return
    later = range(root + 1, history.last + 1)
    earliest = next((each for each in later if all(is_readable(names, digests, each) for names in needed)), None)
    if earliest is None:
        raise EpochUnavailable(
            f"log {working.uri}: it has not all state as of epoch {root}, nor of a later one: somebody drove the flow "
            "elsewhere since, or layers are missing here; open the flow (flow.branch), which fetches what is missing",
            epoch=root,
        )
    raise EpochUnavailable(
        f"log {working.uri}: state as of epoch {root} was compacted; the earliest epoch from which a branch can be "
        f"made here is {earliest}. retain={history.last - root} (or more) would have kept it. The flow itself "
        "(flow.branch) can make state again",
        epoch=root,
        earliest=earliest,
    )


def _check_safe(places: Sequence[Place], shared: Collection[str], history: History, root: int) -> None:
    """Raise `LogError` unless a location holds everything that the branch shares: otherwise the branch would be lost
    with the working directory."""
    digests = history.digests()
    replicas = [place for place in places if isinstance(place, Durable)]
    if any(all(is_readable(place.layers(trace), digests, root) for trace in shared) for place in replicas):
        return
    raise LogError(
        f"log {places[0].uri}: epoch {root} is not safe: no log location that was given has all of it, so a branch "
        "could not be kept. Run the flow until it is (flow.wait_safe), or give all log locations",
        path=places[0].uri,
        epoch=root,
    )


def remove_branch(named: Sequence[Named], name: str) -> None:
    """Remove a branch with all files that only it has."""
    with _locked(named) as (_, working, places):
        known = _known(places)
        if name not in known and name not in _damaged(places, known):
            raise UnknownName(f"log {working.uri}: branch '{name}' not found{did_you_mean(name, known)}", name=name)
        branches.check_idle(working.directory, name)
        _remove(places, working, name, nullcontext())


def _remove(places: Sequence[Place], working: Working, name: str, each: AbstractContextManager[object]) -> None:
    """Remove the files of a branch from all places, first every ``branch.json``. ``each``: a context that is entered
    for each place."""
    for place in places:
        with each:
            place.location.remove(branches.path_of(name))
    for place in places:
        if isinstance(place, Durable):
            with each:
                branches.remove_from(place.location, name)
    with each:
        branches.remove_local(working.directory, name)


@contextmanager
def _locked(named: Sequence[Named]) -> Iterator[tuple[str, Working, list[Place]]]:
    """Hold the lock of a log's working directory. Yields the flow's name, the working directory, and all places."""
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
    """Raise `LogError` if the log has locations that were not given: a branch must be in all of them, or in none."""
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
