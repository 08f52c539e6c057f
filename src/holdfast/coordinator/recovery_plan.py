"""The plan of a recovery: the least work that brings every trace back to the last epoch after a loss.

Given the epoch up to which each operator's traces are covered in each partition (by local layers and all replicas
together), a walk back through the dataflow finds what each lost layer needs: its operator must run in its partition at
its epoch, and for that the change of its producers at that epoch. A producer in the same task (no exchange between) is
needed in the same partition only; a producer behind an exchange is needed in all partitions. The walk stops at
producers whose log still has the change (`runtime/recovery/replay.py` makes the dataflow in which such logs are
sources); if no log is on the way, sources are read again from the lineage. Survivors are not rolled back: they are read
as of the epoch before, compute their output once more, and write nothing.

Epochs are computed again one by one, in order, each as a `Replay`. Some operators are first *filled* by one compound
epoch, which covers epochs 0 to ``fill``: new operators, operators that lost a long history completely, and operators
whose producers cannot be read as of so old an epoch any more. A fill makes the same rows, but not the values that were
drawn at each epoch; so operators that draw values, and operators that read these, are never filled unless they are new.

A rewind (`coordinator/rewinds.py`) is computed again by each operator alone, from its own traces: they must still tell
the changes since the epoch to which the rewind went back. An operator whose traces do not is filled with the state
after the rewind, or up to the last epoch before those that the rewind undid.

Pure: covers in, replays out. The plan never writes a layer that some log holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.coordinator.lineage import Lineage
from holdfast.errors import LogDamaged
from holdfast.plan.dataflow import Dataflow

LONG = 64
"""The number of epochs from which on a completely lost history is filled, and not computed again epoch by epoch."""

Places = Mapping[str, frozenset[int]]
"""Operator → partitions."""


@dataclass(frozen=True)
class Replay:
    """Compute epochs ``first`` … ``epoch`` (one epoch, or 0 … fill as one) of some operators again."""

    first: int
    epoch: int
    write: Places
    """The places of lost layers, which are written again."""

    run: Places
    """The places at which operators must be computed: those of ``write`` and of the producers that these need."""

    sources: frozenset[str] = field(default_factory=frozenset)
    """The sources whose input of these epochs is needed."""

    asking: frozenset[str] = field(default_factory=frozenset)
    """The new operators: their users' functions may be asked, since they have no recorded answers. All other operators
    use recorded answers."""

    undo: int | None = None
    """For a rewind: the epoch to which it went back. Operators negate their own changes since then, and read no
    input."""

    into: Lineage | None = None
    """A rewind that is run now and is not in the history yet: the result as of ``epoch`` is written as the change that
    the rewind makes."""


def plan_recovery(
    flow: Dataflow,
    covers: Mapping[tuple[str, int], int],
    partitions: int,
    last: int,
    fill: int,
    readable: Callable[[str, int, int], bool],
    fresh: Collection[str] = (),
    drawing: Collection[str] = (),
    base: int = -1,
    rewinds: Mapping[int, int] | None = None,
    undoable: Callable[[str, int, int], bool] = lambda operator, partition, epoch: True,
) -> list[Replay]:
    """The replays to run, in order; none if no trace ends before epoch ``last``. Raises `LogDamaged` if an operator
    that draws values would have to be filled.

    ``covers``: (operator, partition) → the epoch up to which its traces are held. ``fill``: the epoch up to which
    operators are filled. ``readable``: whether an operator's traces can be read, in a partition, as of an epoch and all
    later ones up to its cover. ``fresh``: the new operators; ``drawing``: the operators whose values a fill would
    change. ``base``: epochs up to this one were folded, and cannot be computed again one by one. ``rewinds``: rewind →
    the epoch to which it went back; ``undoable``: whether an operator's traces tell, in a partition, all changes after
    an epoch up to its cover.
    """
    rewinds = rewinds or {}
    lost = {place: upto for place, upto in covers.items() if upto < last}
    if not lost:
        return []
    anew = {
        (operator, partition)
        for (operator, partition), upto in lost.items()
        if operator in fresh or (upto < 0 and last >= LONG and operator not in drawing)
    }
    fill = min(fill, last)
    for epoch, to in sorted(rewinds.items(), reverse=True):
        if to < fill < epoch <= last:
            fill = to  # a fill as of an undone epoch would not tell the changes that the rewind undid

    def able(operator: str, partition: int, upto: int) -> bool:
        """Whether all traces that an operator needs can be read as of ``upto``, or are computed again before."""
        if upto < base:
            return False
        if any(to <= upto < each <= last and not undoable(operator, partition, to) for each, to in rewinds.items()):
            return False
        for other, where in demand(flow, {operator: frozenset({partition})}, partitions).items():
            for each in where:
                if (other, each) == (operator, partition):
                    continue
                if (other, each) in anew:
                    if fill > upto:
                        return False
                elif covers[other, each] > upto and not readable(other, each, upto):
                    return False
        return True

    # An operator whose producers cannot be read as of so old an epoch any more cannot be computed again epoch by epoch:
    # it is filled.
    grown = True
    while grown:
        grown = False
        for operator, partition in sorted(lost.keys() - anew):
            if not able(operator, partition, lost[operator, partition]):
                if operator in drawing:
                    raise LogDamaged(
                        f"operator {operator}: what it drew after epoch {lost[operator, partition]} is lost, and "
                        "cannot be computed again, since what it was drawn for was compacted",
                        operator=operator,
                        epoch=lost[operator, partition],
                    )
                anew.add((operator, partition))
                grown = True
    plan = []
    if anew and fill >= 0:
        plan.append(_replay(flow, 0, fill, anew, partitions))
    start = min([upto for place, upto in lost.items() if place not in anew], default=last)
    if anew:
        start = min(start, fill)
    for epoch in range(start + 1, last + 1):
        places = {place for place, upto in lost.items() if (fill if place in anew else upto) < epoch}
        if places and epoch in rewinds:
            plan.append(_rewind(epoch, places, rewinds[epoch]))
        elif places:
            plan.append(_replay(flow, epoch, epoch, places, partitions))
    return plan


def _rewind(epoch: int, places: set[tuple[str, int]], to: int) -> Replay:
    where = _by_operator(places)
    return Replay(epoch, epoch, where, where, undo=to)


def _by_operator(places: set[tuple[str, int]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for operator, partition in places:
        found.setdefault(operator, set()).add(partition)
    return {operator: frozenset(where) for operator, where in found.items()}


def _replay(flow: Dataflow, first: int, epoch: int, places: set[tuple[str, int]], partitions: int) -> Replay:
    frozen = _by_operator(places)
    run = demand(flow, frozen, partitions)
    return Replay(first, epoch, frozen, run, sources_of(flow, run))


def sources_of(flow: Dataflow, run: Places) -> frozenset[str]:
    """The sources whose input the operators at these places need."""
    return frozenset(path.producer for path in flow.paths if path.consumer in run and path.producer in flow.sources)


def demand(flow: Dataflow, places: Places, partitions: int) -> dict[str, frozenset[int]]:
    """All places at which operators must be computed, so that the operators at ``places`` can be."""
    everywhere = frozenset(range(partitions))
    needed = {operator: frozenset(where) for operator, where in places.items()}
    frontier: Sequence[str] = list(needed)
    while frontier:
        above: list[str] = []
        for path in flow.paths:
            if path.consumer not in frontier or path.producer not in flow.operators:
                continue
            where = needed[path.consumer] if path.local else everywhere
            before = needed.get(path.producer, frozenset())
            if not where <= before:
                needed[path.producer] = before | where
                above.append(path.producer)
        frontier = above
    return needed
