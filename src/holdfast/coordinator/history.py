"""Which history is the true one: a chain of lineages, chosen from all records that were found anywhere.

Records come from the local stash, from the segments in each log location, from what sinks were given, and from the
footers of layers. Each names its parent's digest, so together they form a tree that grows from the genesis: a driver
that went on although another had taken over, or an epoch that two drivers ran at once, is a fork.

At a fork the branch wins that something outside has seen (a sink's last commit must be in the history, invariant 6);
then the one of the higher term, since who opened the log later had read all that was durable before; then the longer.
Two sinks that have seen different branches cannot both be right: that is an error, never a guess.

Pure: records in, a chain out. O(n) for n records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.errors import LogDamaged, SinkError


@dataclass(frozen=True)
class Seen:
    """The last commit of a sink: what the outside has seen."""

    subject: str
    epoch: int
    digest: str


def choose(records: Iterable[Lineage], seen: Iterable[Seen] = ()) -> list[Lineage]:
    """The history, from epoch 0 on."""
    # Footers know no answers; a record that has them says more.
    known = {record.digest: record for record in sorted(records, key=lambda record: bool(record.answers))}
    children: dict[str, list[Lineage]] = {}
    for record in known.values():
        children.setdefault(record.parent, []).append(record)
    required = {one.digest: one for one in seen}
    depth: dict[str, int] = {}
    holds: dict[str, frozenset[str]] = {}
    for record in sorted(known.values(), key=lambda record: -record.epoch):
        below = children.get(record.digest, [])
        depth[record.digest] = 1 + max((depth[child.digest] for child in below), default=0)
        own = {record.digest} if record.digest in required else set()
        holds[record.digest] = frozenset(own).union(*(holds[child.digest] for child in below))
    history: list[Lineage] = []
    head = GENESIS
    while branches := [each for each in children.get(head, []) if each.epoch == len(history)]:
        claimed = [branch for branch in branches if holds[branch.digest]]
        if len(claimed) > 1:
            raise _disagree(claimed, holds, required)
        chosen = claimed[0] if claimed else max(branches, key=lambda each: (each.term, depth[each.digest], each.digest))
        history.append(chosen)
        head = chosen.digest
    _check_seen(history, required)
    return history


def extend(history: list[Lineage], records: Iterable[Lineage], complete: int) -> list[Lineage]:
    """``history`` with those records of later epochs, up to ``complete``, that follow it: epochs whose driver died
    before it said that they were complete, but whose layers are all there."""
    following = {record.parent: record for record in sorted(records, key=lambda each: (each.term, each.digest))}
    grown = list(history)
    while len(grown) <= complete:
        after = following.get(grown[-1].digest if grown else GENESIS)
        if after is None or after.epoch != len(grown):
            break
        grown.append(after)
    return grown


def _disagree(claimed: list[Lineage], holds: Mapping[str, frozenset[str]], required: Mapping[str, Seen]) -> SinkError:
    sides = [required[next(iter(holds[branch.digest]))] for branch in claimed]
    return SinkError(
        f"{sides[0].subject} and {sides[1].subject} have seen different histories from epoch {claimed[0].epoch} on: "
        "two drivers were at work at once, and at least one of the sinks does not refuse a stale one; "
        "start one of them anew in an empty place",
        epoch=claimed[0].epoch,
    )


def _check_seen(history: list[Lineage], required: Mapping[str, Seen]) -> None:
    digests = {lineage.digest for lineage in history}
    for one in required.values():
        if one.digest in digests:
            continue
        if one.epoch < len(history):
            raise SinkError(
                f"{one.subject}: it has epoch {one.epoch} of another history than the log's; "
                "give it the log that it belongs to, or start it anew in an empty place",
                epoch=one.epoch,
            )
        raise LogDamaged(
            f"{one.subject}: it has epoch {one.epoch}, and the log's history ends with epoch {len(history) - 1}: "
            "the lineage between is in none of the places that were looked at; give the flow all its log locations, "
            "or start the sink anew in an empty place",
            epoch=one.epoch,
        )
