"""A keyed task on another member than the one that keeps its partition.

Spark prefers the partition's own member, and sometimes does otherwise: that one is busy, or slow, and a speculative
copy runs beside it. Such a task takes what it lacks from the log's copies, if together with what is here they hold
every trace of its stage as of the epoch before; then it writes its layers here, and either attempt may win: both wrote
the same. Its report says where it ran, and the driver has the partition kept here from then on. If the copies do not
hold enough (they lag, that is their way), the task fails, and Spark tries it again, at home if it can.

Three kinds of tasks never run elsewhere: replays, which are made for the members that lack something; those of epochs
that are approximate, of which there are no copies; and those that ask outside functions, whose answers are fixed by a
file at home (`fixed_answers.py`).
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
"""A task that must be tried again waits so long: time for its own member to have room for it."""


def fetch_missing_layers(program: Program, stage: int, partition: int, epoch: EpochSpec, pause: float = _PAUSE) -> int:
    """Have all that a keyed task needs here; how many layers had to be fetched. Raises `Misplaced` if it cannot be."""
    if not epoch.owners or epoch.owners[partition] == (own := member()):
        return 0
    home = epoch.owners[partition]
    if epoch.number == 0 and epoch.write is not None and not epoch.write:
        return 0  # it reads nothing and writes nothing: a driver warms up
    if own and not any(epoch.runs(operator.id, partition) for operator in program.at(stage)):
        return 0  # it only passes on what others sent
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
    """Fetch what the traces of a stage lack here, as of the epoch before."""
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
            continue  # another may have it
        for name in names:
            if digests.get(name.last) == name.digest:
                found[name] = (*found.get(name, ()), number)
    return found


def _digests(epoch: EpochSpec) -> dict[int, str]:
    """The digests of all epochs before this one. A task is told the last ones only, and in the copies there may be
    layers of other histories from long before: of those epochs the copies' own lineage says which are true."""
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
    """The lineage that copies hold, by digest: of epochs, and of epochs that were folded."""
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
