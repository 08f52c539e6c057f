"""The choice of the true history: one chain of lineages, out of all records that were found anywhere.

Records come from the local stash, from the segments in each log location, from the lineage that sinks were given, and
from the footers of layers. Each record names its parent's digest, so together they form a tree that grows from the
genesis. The tree has a fork if a driver went on although another had taken over, or if two drivers ran an epoch at
once.

At a fork the side wins that a sink has seen (a sink's last commit must be in the history, invariant 6); then the side
of the higher term, since the driver that opened the log later had read everything that was durable before; then the
longer one. Two sinks that have seen different sides cannot both be right: that raises an error, and is never guessed.

A folded history (`coordinator/folded.py`) begins with a base instead of the genesis. Bases are written for safe epochs,
so all bases lie on one history, unless a part of the log was lost for good: then they are like the sides of a fork.

Pure: records in, a chain out. O(n) for n records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.errors import LogDamaged, SinkError


@dataclass(frozen=True)
class Seen:
    """The last commit of a sink: the epoch that the outside has seen."""

    subject: str
    epoch: int
    digest: str


def choose(records: Iterable[Lineage], seen: Iterable[Seen] = ()) -> History:
    """The true history, from epoch 0 on or from a base. Raises `SinkError` if sinks have seen different histories, or
    an epoch that is not in the true one."""
    records = list(records)
    required = {one.digest: one for one in seen}
    # Copies of a record may lack its answers. Those with answers come last, so that they are kept.
    plain = sorted(
        (record for record in records if not isinstance(record, Folded)), key=lambda record: bool(record.answers)
    )
    tree = _Tree({record.digest: record for record in plain}, required)
    bases = {record.digest: record for record in records if isinstance(record, Folded)}
    found = [tree.walk(base) for base in (None, *bases.values())]
    history = max((each for each in found if len(each) or not bases), key=lambda each: _preference(each, required))
    _check_seen(history, required)
    return history


def _preference(history: History, required: Mapping[str, Seen]) -> tuple[int, int, int, int]:
    """The rank of a history among those that begin with different bases, or with epoch 0. If two bases lie on one
    history, both lead to the same end, and the later base is taken. If not, the order is that of a fork: the history
    that more sinks have seen, then the higher term, then the longer one."""
    known = set(history.digests().values())
    held = sum(one.digest in known for one in required.values())
    return held, history[-1].term if len(history) else -1, history.last, history.first


class _Tree:
    """Records by their parents."""

    def __init__(self, known: Mapping[str, Lineage], required: Mapping[str, Seen]) -> None:
        self._required = required
        self._children: dict[str, list[Lineage]] = {}
        for record in known.values():
            self._children.setdefault(record.parent, []).append(record)
        self._depth: dict[str, int] = {}
        self._holds: dict[str, frozenset[str]] = {}
        for record in sorted(known.values(), key=lambda record: -record.epoch):
            below = self._children.get(record.digest, [])
            self._depth[record.digest] = 1 + max((self._depth[child.digest] for child in below), default=0)
            own = {record.digest} if record.digest in required else set()
            self._holds[record.digest] = frozenset(own).union(*(self._holds[child.digest] for child in below))

    def walk(self, base: Folded | None) -> History:
        """The history that begins with a base, or with epoch 0."""
        history = History([] if base is None else [base])
        head = GENESIS if base is None else base.digest
        while branches := [each for each in self._children.get(head, []) if each.epoch == history.last + 1]:
            claimed = [branch for branch in branches if self._holds[branch.digest]]
            if len(claimed) > 1:
                raise _disagree(claimed, self._holds, self._required)
            chosen = (
                claimed[0]
                if claimed
                else max(branches, key=lambda each: (each.term, self._depth[each.digest], each.digest))
            )
            history.append(chosen)
            head = chosen.digest
        return history


def extend(history: History, records: Iterable[Lineage], complete: int) -> History:
    """``history`` with the records of later epochs, up to ``complete``, that follow it: epochs whose driver died before
    it counted them, although all their layers were written."""
    following = {record.parent: record for record in sorted(records, key=lambda each: (each.term, each.digest))}
    grown = history.copy()
    while grown.last < complete:
        after = following.get(grown[-1].digest if len(grown) else GENESIS)
        if after is None or after.epoch != grown.last + 1:
            break
        grown.append(after)
    return grown


def abandoned(records: Iterable[Lineage], history: History) -> int | None:
    """The first epoch of these records, which a driver once counted, that is not in the history with the same digest;
    None if all are. Epochs up to the history's base are not compared."""
    first = history.first + (history.base is not None)
    others = [each.epoch for each in records if each.epoch >= first and history.digest(each.epoch) != each.digest]
    return min(others, default=None)


def _disagree(claimed: list[Lineage], holds: Mapping[str, frozenset[str]], required: Mapping[str, Seen]) -> SinkError:
    sides = [required[next(iter(holds[branch.digest]))] for branch in claimed]
    return SinkError(
        f"{sides[0].subject} and {sides[1].subject} have seen different histories from epoch {claimed[0].epoch} on: "
        "two drivers were at work at once, and at least one of the sinks does not refuse a stale one; "
        "start one of them anew in an empty place",
        epoch=claimed[0].epoch,
    )


def _check_seen(history: History, required: Mapping[str, Seen]) -> None:
    digests = set(history.digests().values())
    for one in required.values():
        if one.digest in digests:
            continue
        if history.base is not None and one.epoch < history.base.epoch:
            continue  # that epoch was folded, so its digest is unknown; delivery finds out what the sink lacks
        if one.epoch <= history.last:
            raise SinkError(
                f"{one.subject}: it has epoch {one.epoch} of another history than the log's; "
                "give it the log that it belongs to, or start it anew in an empty place",
                epoch=one.epoch,
            )
        raise LogDamaged(
            f"{one.subject}: it has epoch {one.epoch}, and the log's history ends with epoch {history.last}: "
            "the lineage between is in none of the places that were looked at; give the flow all its log locations, "
            "or start the sink anew in an empty place",
            epoch=one.epoch,
        )
