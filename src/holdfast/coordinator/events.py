"""Everything that can happen to a flow, as values: the arguments of `FlowState.handle`.

An event says what was seen or done, never what follows from it. The code that carries out an instruction
(`coordinator/instructions.py`) answers with the event that the instruction names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Holding, ShipResult
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.roster import Roster
from holdfast.errors import Fenced

# -- copying ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundDue:
    """A round of copying should begin at a location."""

    location: int
    now: int
    """The host's clock, in microseconds since 1970."""


@dataclass(frozen=True)
class LocationSeen:
    """A location was listed during its round."""

    location: int
    holding: Holding
    now: int


@dataclass(frozen=True)
class LocationsSeen:
    """Locations were listed outside a round."""

    holdings: Mapping[int, Holding]


@dataclass(frozen=True)
class LocationFailed:
    """A location failed during its round."""

    location: int


@dataclass(frozen=True)
class LayersShipped:
    """Tasks copied layers to a location, or compacted layers there; each result says whether that succeeded."""

    location: int
    results: tuple[ShipResult, ...]


@dataclass(frozen=True)
class ClaimSeen:
    """The greatest claim that a location holds; None if it holds none."""

    location: int
    claim: Claim | None
    process: str = "?"
    host: str = "?"
    now: int | None = None
    """The host's clock, if the claim was checked in the location's round; else None."""


@dataclass(frozen=True)
class DriverFenced:
    """The lease or the lock of the working directory says that another driver may lead."""

    error: Fenced


@dataclass(frozen=True)
class RosterWritten:
    """A roster was written to a location."""

    location: int
    roster: Roster


@dataclass(frozen=True)
class TracesForgotten:
    """The traces that are not needed were removed from a location (-1: the local directories)."""

    location: int


@dataclass(frozen=True)
class RoundEnded:
    """The round at a location is over, whether it succeeded or not; ``troubled``: the location failed."""

    location: int
    troubled: bool


# -- epochs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochRan:
    """All layers of the running epoch are written."""

    lineage: Lineage


@dataclass(frozen=True)
class EpochWritten:
    """The lineage of an epoch is in the stash: from now on the epoch counts."""

    lineage: Lineage


@dataclass(frozen=True)
class EpochCounted:
    """An epoch counts, and all parts of this process were told; its layers have ``bytes`` bytes."""

    lineage: Lineage
    bytes: int


@dataclass(frozen=True)
class EpochFailed:
    """An epoch that was begun, or that ran, will not count."""

    lineage: Lineage


@dataclass(frozen=True)
class LayersRemoved:
    """The layers of a failed epoch are gone everywhere."""

    digest: str


@dataclass(frozen=True)
class HistoryFolded:
    """The stash has the base in place of the epochs that are folded in it."""

    base: Folded


# -- sinks and inputs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommitBegan:
    """A sink is being given an epoch: until it answers, it is unknown whether it has the epoch."""

    sink: int


@dataclass(frozen=True)
class SinkAnswered:
    """A sink has an epoch. ``carried``: the number of records of lineage that came with the commit, up to that epoch;
    None if the sink keeps no lineage."""

    sink: int
    epoch: int
    carried: int | None = None


@dataclass(frozen=True)
class SafetyWanted:
    """A caller waits until an epoch is safe: rounds copy up to it, even if the strategy would copy later."""

    epoch: int


@dataclass(frozen=True)
class StateGone:
    """All state was looked at, and there is none as of an epoch: no state depends on input up to it any more (a level-1
    acknowledgement)."""

    epoch: int


@dataclass(frozen=True)
class SinkStarted:
    """A sink that cannot tell what it has is assumed to have this epoch."""

    sink: int
    epoch: int


@dataclass(frozen=True)
class SnapshotTaken:
    """A snapshot was taken: its epoch stays readable until the snapshot is removed."""

    name: str
    epoch: int | None = None
    """None: the last complete epoch."""


@dataclass(frozen=True)
class SnapshotRemoved:
    """A snapshot was removed."""

    name: str


@dataclass(frozen=True)
class BranchMade:
    """A branch was made that begins after the epoch ``root``: input after that may be replayed into it, until it is
    removed."""

    name: str
    root: int


@dataclass(frozen=True)
class BranchRemoved:
    """A branch was removed."""

    name: str


@dataclass(frozen=True)
class InputsAbsent:
    """Some inputs are not declared now, and may be declared again. ``traces``: their traces. ``whole``: those of the
    traces that this host holds completely, and that can be copied, each with the epoch up to which it does."""

    traces: frozenset[str]
    whole: Mapping[str, int]


# -- members ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MembershipChanged:
    """Members came or went since the runner looked last: "joined", "lost" or "unsettled" (`runtime/runner.py`)."""

    change: str


@dataclass(frozen=True)
class MemberLeaves:
    """A member is to leave on purpose, and is still there."""

    member: str


@dataclass(frozen=True)
class MemberLeft:
    """Other members have all layers that a leaving member kept."""

    member: str


@dataclass(frozen=True)
class TasksRan:
    """The keyed tasks of an epoch ran: the partition of each, and the member on which it ran."""

    tasks: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class MembersLost:
    """A flow that continues without lost members has looked at the membership. ``before``: the owners of partitions
    before that; ``owners``: the owners now."""

    before: tuple[str, ...]
    owners: tuple[str, ...]
    members: frozenset[str]


@dataclass(frozen=True)
class RangeDamaged:
    """A layer of the approximate branch, with the key hashes in [low, high), is damaged."""

    low: int
    high: int


@dataclass(frozen=True)
class BranchImpossible:
    """The other members cannot be reached either: there can be no branch."""


@dataclass(frozen=True)
class BranchEpochRan:
    """An approximate epoch ran, and counts."""

    lineage: Lineage


@dataclass(frozen=True)
class BranchEpochFailed:
    """An approximate epoch that was begun will not count."""

    lineage: Lineage


@dataclass(frozen=True)
class RepairBegan:
    """A repair has begun: the flow is being made exact again."""


@dataclass(frozen=True)
class LayersRecovered:
    """The exact layers are with the owners of their partitions again."""


@dataclass(frozen=True)
class RepairEnded:
    """A repair is over; ``exact``: all epochs of the branch were run again exactly."""

    exact: bool


Event = (
    RoundDue
    | LocationSeen
    | LocationsSeen
    | LocationFailed
    | LayersShipped
    | ClaimSeen
    | DriverFenced
    | RosterWritten
    | TracesForgotten
    | RoundEnded
    | EpochRan
    | EpochWritten
    | EpochCounted
    | EpochFailed
    | LayersRemoved
    | HistoryFolded
    | CommitBegan
    | SinkAnswered
    | SafetyWanted
    | StateGone
    | SinkStarted
    | SnapshotTaken
    | SnapshotRemoved
    | BranchMade
    | BranchRemoved
    | InputsAbsent
    | MembershipChanged
    | MemberLeaves
    | MemberLeft
    | TasksRan
    | MembersLost
    | RangeDamaged
    | BranchImpossible
    | BranchEpochRan
    | BranchEpochFailed
    | RepairBegan
    | LayersRecovered
    | RepairEnded
)
