"""Finding the history: all records of lineage that any place holds, and which of them are the true ones.

Records are looked for in the local stash, the log locations, the sinks, and the local file of epochs that were begun
(and, of logs of old, in the footers of local layers). What the last ones say of epochs that no driver called complete
counts only if all layers of such an epoch are there, and with them what outside functions answered: that is in the
footers of the layers that were made of it. An epoch whose answers are not all known does not count, since a replay asks
nobody.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage, from_lines
from holdfast.coordinator.true_history import Seen, choose, extend
from holdfast.errors import LogDamaged, StoreError
from holdfast.log.begun_epochs import read_begun
from holdfast.log.layer_footers import ANSWERS, LINEAGE
from holdfast.log.replica import Replica, is_true
from holdfast.log.stash import read_stash
from holdfast.results.flow_results import Recovery
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.trace.cover import covered
from holdfast.trace.layer import layer_metadata
from holdfast.trace.name import ALL

_LOOKS = 5
"""So often a location is listed whose segments are merged meanwhile."""


def find_history(
    stash: Path,
    replicas: Mapping[str, Replica],
    sinks: Sequence[tuple[Seen, Sequence[Lineage]]],
    begun: Path,
    directories: Sequence[Path],
    asking: Mapping[str, Path],
    recovery: Recovery,
) -> History:
    """The history, from all places that hold lineage. ``replicas`` by name; ``sinks``: what each has seen, and the
    lineage it was given; ``begun``: the file of epochs that were begun; ``directories``: the live local traces;
    ``asking``: operators that ask outside → the trace whose layers say what was answered."""
    records, damaged = read_stash(stash)
    known = {record.digest for record in records}
    bases = [record for record in records if isinstance(record, Folded)]
    whole = not damaged and all(
        record.parent in known or record.epoch == 0 or isinstance(record, Folded) for record in records
    )
    known |= {digest for base in bases for digest in base.ends.values()}
    _found(recovery, "local", records)
    for name, replica in replicas.items():
        try:
            records += _records(name, replica, known if whole else (), recovery)
        except (StoreError, FileNotFoundError) as error:
            recovery.unreachable[name] = str(error)
    for seen, given in sinks:
        _found(recovery, seen.subject, given)
        records += given
    seen_by_sinks = [seen for seen, _ in sinks]
    newest = max((record.epoch for record in records), default=-1)
    after = -1 if damaged else newest
    others = [record for record in read_begun(begun) if record.epoch > after]
    others += _footers(directories, after)
    if damaged:
        # What the stash lost may be there. (What was begun last may not have been complete: see below.)
        records += [_completed(record, asking) or record for record in others if record.epoch <= newest]
        recovery.damaged += [f"{stash}: line {number}: {why}" for number, why in damaged]
    history = choose(records, seen_by_sinks)
    if damaged and any(record.epoch > history.last for record in records):
        number, why = damaged[0]
        raise LogDamaged(f"lineage {stash}: line {number}: {why}, and no other copy of it was found", path=str(stash))
    following = [
        completed
        for record in others
        if record.epoch > history.last and (completed := _completed(record, asking)) is not None
    ]
    if following and directories:
        tentative = extend(history, following, max(record.epoch for record in following))
        complete = min(_complete(directory, tentative) for directory in directories)
        history = extend(history, following, complete)
        _found(recovery, "layers", history)
    recovery.epoch = history.last
    return history


def _records(name: str, replica: Replica, known: Collection[str], recovery: Recovery) -> list[Lineage]:
    """What a location holds, without the segments whose last digest is known. A segment that is gone was merged by a
    driver that has not noticed this one yet: what it was merged into is in the next listing."""
    for attempt in range(_LOOKS):
        records: list[Lineage] = []
        try:
            for segment in replica.segments():
                if segment.digest in known:
                    _found(recovery, name, [], segment.last)
                    continue
                try:
                    records += replica.read_segment(segment)
                except LogDamaged as error:
                    if str(error) not in recovery.damaged:
                        recovery.damaged.append(str(error))
            break
        except FileNotFoundError:
            if attempt == _LOOKS - 1:
                raise
    _found(recovery, name, records)
    return records


def _found(recovery: Recovery, where: str, lineages: Sequence[Lineage], last: int = -1) -> None:
    last = max([last, *(lineage.epoch for lineage in lineages)])
    if last >= 0:
        recovery.lineage[where] = max(last, recovery.lineage.get(where, -1))


def _footers(directories: Sequence[Path], after: int) -> Iterator[Lineage]:
    """The lineage that local layers of later epochs carry."""
    for directory in directories:
        for name in local_layers(directory):
            if name.last > after:
                try:
                    yield from from_lines(layer_metadata(directory / name.text()).get(LINEAGE, "").encode())
                except (LogDamaged, ValueError, FileNotFoundError):
                    continue  # a torn layer says nothing; it will be found out when it is used


def _completed(record: Lineage, asking: Mapping[str, Path]) -> Lineage | None:
    """An epoch that no driver called complete, with what was answered in it; None if a layer does not say that."""
    answers: dict[str, dict[str, str]] = {}
    for operator, directory in asking.items():
        for name in local_layers(directory):
            if name.last == record.epoch and name.digest == record.digest:
                try:
                    said = json.loads(layer_metadata(directory / name.text())[ANSWERS])
                except (KeyError, ValueError, LogDamaged, FileNotFoundError):
                    return None
                if said:
                    answers.setdefault(operator, {}).update(said)
    return record.answered(answers) if answers else record


def _complete(directory: Path, history: History) -> int:
    names = [name for name in local_layers(directory) if is_true(name, history)]
    return covered(names, 0, ALL, trusting(history.last))
