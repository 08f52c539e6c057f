"""A keyed task that runs on another member than its partition's owner.

Spark prefers the owner, but may run a task on another member: the owner is busy, or it is slow and Spark starts a
speculative copy. Such a task fetches the layers that it lacks from the log's copies, if the copies and the local layers
together hold every trace of its stage as of the epoch before. Then it writes its new layers locally. Either attempt may
win, since both write the same layers. The task's report says where it ran, and from then on the driver takes that
member as the partition's owner. If the copies do not hold enough (they may lag behind), the task fails, and Spark tries
it again, on the owner if it can.

Three kinds of tasks never run on another member: tasks of a replay, which were planned for the members that lack
layers; tasks of approximate epochs, of which there are no copies; and tasks that call outside functions, whose answers
are fixed by a file on the owner (`fixed_answers.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from holdfast.coordinator.copy_plan import Copied, trusting
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import HoldfastError, StoreError
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.host_paths import Misplaced, host_path, member
from holdfast.log.lineage_copies import read_location
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.task.program import Program, partition_range
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import cover
from holdfast.trace.layer import list_layers
from holdfast.trace.name import LayerName

_PAUSE = 0.5
"""Seconds that a task waits before it fails and Spark tries it again: time for its owner to have room for it."""


def fetch_missing_layers(program: Program, stage: int, partition: int, epoch: EpochSpec, pause: float = _PAUSE) -> int:
    """Fetch all layers that a keyed task needs on this member. Return how many were fetched. Raises `Misplaced` if the
    task cannot run here."""
    if not epoch.owners or epoch.owners[partition] == (own := member()):
        return 0
    home = epoch.owners[partition]
    if epoch.number == 0 and epoch.write is not None and not epoch.write:
        return 0  # the driver's warm-up epoch: it reads nothing and writes nothing
    if own and not any(epoch.runs(operator.id, partition) for operator in program.at(stage)):
        return 0  # it only passes on messages of other tasks
    if not own or epoch.first != epoch.number or epoch.run is not None or epoch.write is not None:
        raise _misplaced(home, own, "it must run there", pause)
    if any(operator.spec.asks for operator in program.at(stage)):
        raise _misplaced(home, own, "it asks outside functions", pause)
    if epoch.number == 0:
        return 0
    try:
        return _fetch(program, stage, partition, epoch)
    except (HoldfastError, FileNotFoundError) as error:
        raise _misplaced(home, own, str(error), pause) from error


def _misplaced(home: str, own: str, why: str, pause: float) -> Misplaced:
    time.sleep(pause)
    return Misplaced(home, own, why)


def _fetch(program: Program, stage: int, partition: int, epoch: EpochSpec) -> int:
    """Fetch the layers that the traces of a stage lack here, as of the epoch before. Return how many were fetched."""
    low, high = partition_range(partition, epoch.partitions)
    last = epoch.number - 1
    digests = _digests(epoch)
    traces = [f"{one.id}.{suffix}" for one in program.at(stage) for suffix in one.spec.layouts()]
    fetches = []
    for trace in traces:
        directory = host_path(epoch.traces) / trace
        local = {name for name in list_layers(directory) if digests.get(name.last) == name.digest}
        remote = _remote(trace, epoch.copies, digests)
        for piece in cover([*local, *remote], low, high, last, trusting(last)):
            if piece.name not in local:
                fetches.append(Fetch(trace, piece.name, str(directory), remote[piece.name]))
    results = fetch_all(fetches, epoch.copies)
    done = sum(isinstance(result, Copied) for result in results)
    if done < len(fetches):
        raise StoreError(f"{len(fetches) - done} of {len(fetches)} layers could not be fetched")
    return done


def _remote(trace: str, copies: Sequence[Location], digests: Mapping[int, str]) -> dict[LayerName, tuple[int, ...]]:
    found: dict[LayerName, tuple[int, ...]] = {}
    for number, location in enumerate(copies):
        try:
            names = Replica(location).layers(trace)
        except StoreError:
            continue  # another location may have the layers
        for name in names:
            if digests.get(name.last) == name.digest:
                found[name] = (*found.get(name, ()), number)
    return found


def _digests(epoch: EpochSpec) -> dict[int, str]:
    """Return the digest of each epoch before this one. A task is told only the latest ones, and the copies may still
    hold layers of abandoned histories from long before. Which of those are true follows from the lineage in the
    copies."""
    found = {epoch.chain.base + 1 + place: digest for place, digest in enumerate(epoch.chain.digests)}
    found[epoch.number - 1] = epoch.parent
    if len(found) < epoch.number:
        known, bases = _known(epoch.copies)
        number = min((each for each, digest in found.items() if digest in known or digest in bases), default=-1)
        while number > 0 and found[number] in known:
            found[number - 1] = known[found[number]].parent
            number -= 1
        base = next((bases[digest] for digest in found.values() if digest in bases), None)
        if base is not None:
            return {**base.ends, **found}
    if len(found) < epoch.number:
        raise StoreError(f"the copies do not have the lineage up to epoch {epoch.chain.base}")
    return found


def _known(copies: Sequence[Location]) -> tuple[dict[str, Lineage], dict[str, Folded]]:
    """Read the lineage that the copies hold, by digest: records of epochs, and records of folded epochs."""
    known: dict[str, Lineage] = {}
    bases: dict[str, Folded] = {}
    for location in copies:
        try:
            found = read_location(Replica(location), known)
        except (HoldfastError, FileNotFoundError):
            continue
        bases |= {record.digest: record for record in found.records if isinstance(record, Folded)}
        known |= {record.digest: record for record in found.records if not isinstance(record, Folded)}
    return known, bases
