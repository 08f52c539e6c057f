"""A flow's state for tests, with the answers that locations, sources and sinks would give, written as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Copied, Holding, Ship, ShipResult
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.enrolment import Enrolment
from holdfast.coordinator.events import (
    ClaimSeen,
    EpochCounted,
    EpochRan,
    EpochWritten,
    LayersShipped,
    LocationSeen,
    RoundDue,
    RoundEnded,
)
from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import Instruction, Look, ShipLayers
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.coordinator.roster import Roster
from holdfast.coordinator.sink_progress import SinkProgress
from holdfast.coordinator.view_versions import ViewVersion
from holdfast.trace.name import ALL, LayerName

QUARTER = 1 << 62
RANGES = [(part * QUARTER, min(ALL, (part + 1) * QUARTER)) for part in range(4)]
MINE = Claim(2, "b" * 16)
VERSION = ViewVersion("log", ("bigint",), (0,))
EDITED = ViewVersion("edited", ("bigint",), (0,))


def layer(first: int, last: int, low: int = 0, high: int = ALL, since: int = -1) -> LayerName:
    return LayerName(low, high, first, last, f"{last:016x}", since, "0" * 16)


class Case:
    """A flow whose log has locations "a", "b", …; trace "t" is live."""

    def __init__(
        self,
        locations: int = 1,
        min_replicas: int = 1,
        roster: Sequence[int] | None = None,
        traces: Mapping[str, int | None] | None = None,
        sinks: Sequence[int | None] = (),
        declared: ViewVersion = VERSION,
        before: ViewVersion | None = None,
        members: Sequence[str] = (),
        continues: bool = False,
        settings: DurabilitySettings | None = None,
        inputs: Sequence[str] = (),
        root: int | None = None,
    ) -> None:
        """``roster``: the locations that count from the beginning, all by default; ``sinks``: what each sink of view
        "v" has; ``members``: the owners of the partitions; ``inputs``: traces of input which is nowhere else."""
        self.identities = {number: chr(ord("a") + number) * 16 for number in range(locations)}
        uris = [f"memory:{number}" for number in range(locations)]
        counting = range(locations) if roster is None else roster
        progress = SinkProgress(["v"] * len(sinks))
        for epoch in sinks:
            progress.opened(epoch)
        self.ownership = PartitionOwnership(len(members)) if members else None
        if self.ownership is not None:
            self.ownership.seen(sorted(set(members)))
            self.ownership.hand_over(dict(enumerate(members)))
        self.state = FlowState(
            History(),
            MINE,
            settings or DurabilitySettings(min_replicas=min_replicas),
            uris=uris,
            reaches=traces or {"t": None},
            inputs=inputs,
            ranges=RANGES[: len(members)] if members else [(0, ALL)],
            enrolment=Enrolment(
                Roster((1, 0), min_replicas, {self.identities[number]: uris[number] for number in counting}),
                self.identities,
                uris,
                -1,
                min_replicas,
                MINE,
            ),
            sinks=progress,
            declared={"v": declared},
            before=None if before is None else {"v": before},
            ownership=self.ownership,
            continues=continues,
            root=root,
        )

    def begin(self, seed: int = 0) -> Lineage:
        return self.state.begin({"orders": self.state.epochs.last + 1}, 1000, seed)

    def count(self, lineage: Lineage, size: int = 10) -> list[Instruction]:
        """An epoch that ran counts; what follows."""
        self.state.handle(EpochRan(lineage))
        self.state.handle(EpochWritten(lineage))
        return self.state.handle(EpochCounted(lineage, size))

    def epochs(self, number: int) -> list[Instruction]:
        """Several epochs run, and count; what follows from the last."""
        found: list[Instruction] = []
        for seed in range(number):
            found = self.count(self.begin(seed))
        return found

    def holding(self, location: int, upto: int, lineage: int | None = None, **traces: int) -> Holding:
        """What a location holds that has all live traces up to an epoch, and others as far as ``traces`` says."""
        reached = {**dict.fromkeys(self.state.copies.traces, upto), **traces}
        layers = {trace: {layer(0, last): 100} for trace, last in reached.items() if last >= 0}
        return Holding(layers, upto if lineage is None else lineage, self.identities[location], (1, 0))

    def due(self, location: int = 0) -> list[Instruction]:
        return self.state.handle(RoundDue(location, 5000))

    def seen(self, location: int, holding: Holding) -> list[Instruction]:
        return self.state.handle(LocationSeen(location, holding, 5000))

    def shipped(self, location: int, *results: ShipResult) -> list[Instruction]:
        return self.state.handle(LayersShipped(location, results))

    def claimed(self, location: int, claim: Claim = MINE) -> list[Instruction]:
        return self.state.handle(ClaimSeen(location, claim, "7", "host", now=5000))

    def ended(self, location: int, troubled: bool = False) -> list[Instruction]:
        return self.state.handle(RoundEnded(location, troubled))

    def round(self, location: int, upto: int, **traces: int) -> list[Instruction]:
        """A whole round at a location, which holds everything up to an epoch afterwards."""
        before = self.state.copies.holdings.get(location) or Holding({}, -1, self.identities[location], (1, 0))
        following = self.due(location)
        if len(following) == 1:
            self.seen(location, before)
        self.shipped(location, Copied(location, "t", layer(0, upto), 100))
        self.seen(location, self.holding(location, upto, **traces))
        self.claimed(location)
        return self.ended(location)

    def seen_ships(self) -> list[Ship]:
        """What a round at the first location would copy that begins now: one that holds what it did at the end of its
        last round, or nothing."""
        found = self.due()
        if len(found) == 1 and isinstance(found[0], Look):
            found = self.seen(0, Holding({}, -1, self.identities[0], (1, 0)))
        return [ship for each in found if isinstance(each, ShipLayers) for ship in each.ships]
