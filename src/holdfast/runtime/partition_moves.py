"""Partitions that change owners on purpose: when their number changes (``flow.rescale``), or a member is to leave
(``flow.drain``, and Spark's own decommissioning).

First, beside epochs, the new owners of ranges of key hashes fetch the copies of these ranges (`bring_ahead`). Then,
between two epochs, the owners change: layers that no copy has are handed over by the old owner. Nothing is computed
again, and only ranges that change owners move. `coordinator/partition_ownership.py` decides who owns what.

Cost: the bytes of the ranges that move.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast.coordinator import events, instructions
from holdfast.coordinator.copy_plan import Copied
from holdfast.coordinator.partition_assignment import Kept, assign, changing_hands, inherit
from holdfast.errors import DeclarationError, MemberUnreachable, UnknownName
from holdfast.foundation import failpoints
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.log.copying import Fetch, fetch_all
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.fetch_layers import Layers
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.task.program import partition_range


class PartitionMoves:
    """Moves the partitions of an open flow."""

    def __init__(self, flow: OpenFlow, recoverer: Recoverer) -> None:
        self._flow = flow
        self._runner = flow.runner
        self._recoverer = recoverer

    @property
    def between_members(self) -> bool:
        """Whether the layers of a partition lie on its owner, so that they move when the owner changes."""
        return self._runner.scattered

    def keeps_layers(self, member: str) -> bool:
        """Whether a member is there, is not leaving, and keeps layers that other members may need."""
        ownership = self._flow.state.ownership
        return ownership is not None and member in ownership.asked and member not in ownership.leaving

    def heirs(self, member: str) -> tuple[str, ...]:
        """Return the owners of the partitions if a member left. Raise `UnknownName` if there is no such member,
        `DeclarationError` if no other member can inherit its partitions."""
        ownership = self._flow.state.ownership
        name = self._flow.compiled.declared.name
        if ownership is None:
            raise DeclarationError(
                f"flow '{name}', drain: no member keeps layers of its own (all of them are in one place), so none has "
                "anything to hand over",
                flow=name,
            )
        if member not in ownership.members:
            known = sorted(ownership.members)
            raise UnknownName(
                f"flow '{name}', drain: member '{member}' not found{did_you_mean(member, known)}", name=member
            )
        able = ownership.members - ownership.leaving - {member}
        if not able:
            raise DeclarationError(
                f"flow '{name}', drain: member '{member}' is the last one; start another one first", flow=name
            )
        return (
            inherit(ownership.owners, able) if able & set(ownership.owners) else assign(self._runner.partitions, able)
        )

    def bring_ahead(self, owners: Sequence[str]) -> int:
        """Have members fetch copies of the ranges of key hashes that they will own and do not own now. ``owners``: the
        future owner of each partition; their number may differ from the present one. Return how many layers were
        fetched. Any thread may call it while epochs run; the rest is brought when the owners change."""
        history, declared = self._flow.state.history, self._flow.compiled.declared
        last, owned = history.last, self._runner.owners()
        if not declared.settings.durable or last < 0 or not self._runner.scattered:
            return 0
        moves = changing_hands(_kept(owned), _kept(owners))
        traces, holdings = list(self._flow.compiled.layouts), dict(self._flow.durability.holdings)
        with suppress(MemberUnreachable):
            layers = Layers(
                self._runner,
                traces,
                self._flow.compiled.directory,
                last,
                holdings,
                history.copy(),
                {(low, high): heir for low, high, heir in moves},
            )
            heirs, ranges = {low: heir for low, _, heir in moves}, [(low, high) for low, high, _ in moves]
            wanted: dict[str, list[Fetch]] = {}
            for trace in traces:
                for fetch in layers.missing(trace, ranges):
                    wanted.setdefault(heirs[fetch.low], []).append(fetch)
            locations = declared.locations
            done = self._runner.visit("bringing layers ahead", wanted, lambda some: fetch_all(some, locations))
            return sum(isinstance(each, Copied) for each in done)
        return 0

    def owners_of(self, partitions: int) -> tuple[str, ...]:
        """Return the owners for another number of partitions; empty if all layers are in one directory."""
        ownership = self._flow.state.ownership
        return () if ownership is None else assign(partitions, ownership.able)

    def moved(self, ahead: int) -> None:
        """Finish a change of owners: members remove layers of partitions that they do not own any more. ``ahead``: how
        many layers were fetched by `bring_ahead`."""
        self._recoverer.recovery.layers_ahead = ahead
        if self._runner.scattered:
            self._recoverer.remove_others()
        self._flow.durability.request()

    def leave(self, member: str, ahead: int) -> None:
        """Give a member's partitions to other members, between two epochs: layers that no copy has, the member itself
        hands over. ``ahead``: how many layers were fetched by `bring_ahead`."""
        for instruction in self._flow.guard.tell(events.MemberLeaves(member)):
            assert isinstance(instruction, instructions.BringOver)
            self._recoverer.rebalance()
            self._recoverer.recovery.layers_ahead = ahead
            failpoints.reach("drain.brought_over")
            self._flow.guard.tell(events.MemberLeft(member))


def _kept(owners: Sequence[str]) -> Kept:
    """Return the ranges of key hashes of these partitions, each with its owner."""
    return [(*partition_range(each, len(owners)), owner) for each, owner in enumerate(owners)]
