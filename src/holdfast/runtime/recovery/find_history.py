"""Finding the history: collects all records of lineage that there are, and chooses those of the true history.

Records are searched in the local stash, the log locations, the sinks, and the local file of begun epochs (for older
logs, also in the footers of local layers). The file of begun epochs and the footers also have epochs that no driver
called complete. Such an epoch counts only if all its layers are there, with the answers of outside functions, which are
in the footers of the layers made from them. An epoch whose answers are not all known does not count, because a replay
does not ask outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage, from_lines
from holdfast.coordinator.true_history import Seen, abandoned, choose, extend
from holdfast.errors import LogDamaged
from holdfast.log.begun_epochs import read_begun
from holdfast.log.layer_footers import ANSWERS, LINEAGE
from holdfast.log.lineage_copies import orphans, read_location, read_places, read_working, records_of
from holdfast.log.replica import Replica, is_true
from holdfast.runtime.recovery.fetch_layers import local_layers
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.trace.cover import covered
from holdfast.trace.layer import layer_metadata
from holdfast.trace.name import ALL

_LOCAL = "local"
"""The name of the working directory among the places that hold lineage."""


def find_history(
    stash: Path,
    replicas: Mapping[str, Replica],
    sinks: Sequence[tuple[Seen, Sequence[Lineage]]],
    begun: Path,
    directories: Sequence[Path],
    asking: Mapping[str, Path],
    recovery: RecoveryRecord,
) -> tuple[History, int | None]:
    """Return the history, and the first epoch that the stash has as complete and the history does not have (None: there
    is none): sinks that cannot tell what they have may have been given that epoch.

    ``replicas``: name → replica; ``sinks``: what each sink has seen, and the lineages that it was given; ``begun``: the
    file of begun epochs; ``directories``: the live local traces; ``asking``: operator that asks outside → the trace
    whose layers have the answers. Raise `LogDamaged` if the stash is damaged and no copy has the lost records."""
    away: dict[str, Exception] = {}
    readers = {name: partial(read_location, replica) for name, replica in replicas.items()}
    found = read_places({_LOCAL: lambda _: read_working(stash)}, readers, away)
    recovery.unreachable |= {name: str(error) for name, error in away.items()}
    records, damaged = records_of(found.values()), found[_LOCAL].damaged
    for name, each in found.items():
        _found(recovery, name, each.last)
        if name != _LOCAL:
            uri = replicas[name].location.uri
            recovery.damaged += [f"log {uri}: {torn.path}: {torn.why}" for torn in each.damaged]
    for seen, given in sinks:
        _found(recovery, seen.subject, max((each.epoch for each in given), default=-1))
        records += given
    seen_by_sinks = [seen for seen, _ in sinks]
    newest = max((record.epoch for record in records), default=-1)
    after = -1 if damaged else newest
    others = [record for record in read_begun(begun) if record.epoch > after]
    others += _footers(directories, after)
    if damaged:
        # The other places may have records that the stash lost. (Later epochs may not be complete: see below.)
        records += [_completed(record, asking) or record for record in others if record.epoch <= newest]
        recovery.damaged += [f"{stash}: line {each.line}: {each.why}" for each in damaged]
    history = choose(records, seen_by_sinks)
    # If every record has its parent, no record is lost: later epochs are of a history that was not chosen.
    if damaged and orphans(records) and any(record.epoch > history.last for record in records):
        where = f"lineage {stash}: line {damaged[0].line}"
        raise LogDamaged(f"{where}: {damaged[0].why}, and no other copy of it was found", path=str(stash))
    following = [
        completed
        for record in others
        if record.epoch > history.last and (completed := _completed(record, asking)) is not None
    ]
    if following and directories:
        tentative = extend(history, following, max(record.epoch for record in following))
        complete = min(_complete(directory, tentative) for directory in directories)
        history = extend(history, following, complete)
        _found(recovery, "layers", history.last)
    recovery.epoch = history.last
    return history, abandoned(found[_LOCAL].records, history)


def _found(recovery: RecoveryRecord, where: str, last: int) -> None:
    if last >= 0:
        recovery.lineage[where] = max(last, recovery.lineage.get(where, -1))


def _footers(directories: Sequence[Path], after: int) -> Iterator[Lineage]:
    """Yield the lineages in the footers of local layers of epochs after ``after``."""
    for directory in directories:
        for name in local_layers(directory):
            if name.last > after:
                try:
                    yield from from_lines(layer_metadata(directory / name.text()).get(LINEAGE, "").encode())
                except (LogDamaged, ValueError, FileNotFoundError):
                    continue  # a torn layer says nothing; it is reported when it is used


def _completed(record: Lineage, asking: Mapping[str, Path]) -> Lineage | None:
    """Return the record of an epoch that no driver called complete, with the answers from its layers; None if a layer
    does not tell its answers."""
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
