"""Partitions that change hands on purpose: another number of them (``flow.rescale``), or a member that is to leave
(``flow.drain``, and Spark's own decommissioning).

First, beside epochs, the members that will keep a range of key hashes fetch what copies have of it (`bring_ahead`).
Then, between two epochs, the switch: what no copy has is handed over by the member that keeps it. Nothing is computed
again, and only ranges that change hands move. Who keeps what is decided in `coordinator/partition_ownership.py`.

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
        """Whether what a partition keeps lies on its member, and moves with it."""
        return self._runner.scattered

    def keeps_layers(self, member: str) -> bool:
        """Whether a member is there and has layers of its own, which others may need."""
        ownership = self._flow.state.ownership
        return ownership is not None and member in ownership.asked and member not in ownership.leaving

    def heirs(self, member: str) -> tuple[str, ...]:
        """Who would keep the partitions if a member left. Raises if nobody can inherit what it keeps."""
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
        """Have members fetch what copies have of the ranges of key hashes that they will keep, and do not keep now:
        ``owners`` will keep the partitions, of which there may be another number then. How many layers they fetched.
        Beside epochs, from any thread; what it does not bring comes with the switch."""
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
        """Who would keep the partitions if there were so many; nobody if all layers are in one place."""
        ownership = self._flow.state.ownership
        return () if ownership is None else assign(partitions, ownership.able)

    def moved(self, ahead: int) -> None:
        """Partitions have changed hands on purpose, for which members had fetched so many layers ahead. What others
        keep now is removed where it was."""
        self._recoverer.recovery.layers_ahead = ahead
        if self._runner.scattered:
            self._recoverer.remove_others()
        self._flow.durability.request()

    def leave(self, member: str, ahead: int) -> None:
        """Have others keep what a member keeps: what copies do not have, the member itself hands over. ``ahead``: so
        many layers were fetched for it before. Between two epochs."""
        for instruction in self._flow.guard.tell(events.MemberLeaves(member)):
            assert isinstance(instruction, instructions.BringOver)
            self._recoverer.rebalance()
            self._recoverer.recovery.layers_ahead = ahead
            failpoints.reach("drain.brought_over")
            self._flow.guard.tell(events.MemberLeft(member))


def _kept(owners: Sequence[str]) -> Kept:
    """The ranges of key hashes that members keep, which have these partitions."""
    return [(*partition_range(each, len(owners)), owner) for each, owner in enumerate(owners)]
