"""Everything that can happen to a flow, as values: what `FlowState.handle` takes.

An event says what was seen or done, never what follows from it. Whoever carries out an instruction
(`coordinator/instructions.py`) answers with the event that it names.
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
    """A round of copying is to be made at a location."""

    location: int
    now: int
    """The host's clock, in microseconds since 1970."""


@dataclass(frozen=True)
class LocationSeen:
    """A location was listed, in the course of its round."""

    location: int
    holding: Holding
    now: int


@dataclass(frozen=True)
class LocationsSeen:
    """Locations were listed, and not in the course of a round."""

    holdings: Mapping[int, Holding]


@dataclass(frozen=True)
class LocationFailed:
    """A location does not answer, in the course of its round."""

    location: int


@dataclass(frozen=True)
class LayersShipped:
    """Tasks have copied layers to a location, or compacted layers there, as far as they could."""

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
    """The host's clock, if this is part of the location's round."""


@dataclass(frozen=True)
class DriverFenced:
    """It is known from elsewhere (the lease, the lock of the working directory) that another driver may lead."""

    error: Fenced


@dataclass(frozen=True)
class RosterWritten:
    """A location has this roster now."""

    location: int
    roster: Roster


@dataclass(frozen=True)
class TracesForgotten:
    """A location (-1: the local directories) has no trace any more that the flow does not need."""

    location: int


@dataclass(frozen=True)
class RoundEnded:
    """The round at a location is over, however it went; ``troubled``: the location fails."""

    location: int
    troubled: bool


# -- epochs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochRan:
    """All layers of the epoch that runs are written."""

    lineage: Lineage


@dataclass(frozen=True)
class EpochWritten:
    """The line of an epoch is in the stash: from now on it counts."""

    lineage: Lineage


@dataclass(frozen=True)
class EpochCounted:
    """An epoch counts, and everybody in this process knows; its layers have so many bytes."""

    lineage: Lineage
    bytes: int


@dataclass(frozen=True)
class EpochFailed:
    """An epoch that was begun, or that ran, is not to count."""

    lineage: Lineage


@dataclass(frozen=True)
class LayersRemoved:
    """The layers of a failed epoch are gone everywhere."""

    digest: str


@dataclass(frozen=True)
class HistoryFolded:
    """The stash has the base instead of the epochs before it."""

    base: Folded


# -- sinks and inputs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommitBegan:
    """A sink is given an epoch: until it answers, nobody knows whether it has it."""

    sink: int


@dataclass(frozen=True)
class SinkAnswered:
    """A sink has an epoch. ``carried``: so many records of lineage came with it, the last one of that epoch."""

    sink: int
    epoch: int
    carried: int | None = None


@dataclass(frozen=True)
class SafetyWanted:
    """Somebody waits until an epoch is safe: rounds copy up to it, whatever the strategy would leave for later."""

    epoch: int


@dataclass(frozen=True)
class StateGone:
    """All state was looked at, and none is left as of an epoch: input up to it is part of nothing any more (a level-1
    acknowledgement)."""

    epoch: int


@dataclass(frozen=True)
class SinkStarted:
    """A sink that cannot tell what it has is taken to have this epoch."""

    sink: int
    epoch: int


@dataclass(frozen=True)
class SnapshotTaken:
    """An epoch has a name, and stays readable until that is removed."""

    name: str
    epoch: int | None = None
    """None: the last complete one."""


@dataclass(frozen=True)
class SnapshotRemoved:
    """The name is no more."""

    name: str


@dataclass(frozen=True)
class BranchMade:
    """A branch begins behind this epoch: what came since may be fed to it again, until it is removed."""

    name: str
    root: int


@dataclass(frozen=True)
class BranchRemoved:
    """The branch is no more."""

    name: str


@dataclass(frozen=True)
class InputsAbsent:
    """Inputs are not declared now, and may be again. ``traces``: theirs. ``whole``: of these, the ones that are whole
    here, each up to an epoch, and so can be copied."""

    traces: frozenset[str]
    whole: Mapping[str, int]


# -- members ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MembershipChanged:
    """Members came or went since the runner looked last: "joined", "lost" or "unsettled" (`runtime/runner.py`)."""

    change: str


@dataclass(frozen=True)
class MemberLeaves:
    """A member is to go, and is still there."""

    member: str


@dataclass(frozen=True)
class MemberLeft:
    """Others have all that a member kept."""

    member: str


@dataclass(frozen=True)
class TasksRan:
    """The keyed tasks of an epoch ran: the partition of each, and the member on which it ran."""

    tasks: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class MembersLost:
    """A flow that continues without lost members has looked who is there. ``before``: the owners before that."""

    before: tuple[str, ...]
    owners: tuple[str, ...]
    members: frozenset[str]


@dataclass(frozen=True)
class RangeDamaged:
    """A layer of the approximate branch is damaged that holds these key hashes."""

    low: int
    high: int


@dataclass(frozen=True)
class BranchImpossible:
    """The members that were left cannot be reached either: there is no branch."""


@dataclass(frozen=True)
class BranchEpochRan:
    """An approximate epoch ran, and counts."""

    lineage: Lineage


@dataclass(frozen=True)
class BranchEpochFailed:
    """An approximate epoch that was begun is not to count."""

    lineage: Lineage


@dataclass(frozen=True)
class RepairBegan:
    """What is approximate is being made exact."""


@dataclass(frozen=True)
class LayersRecovered:
    """The exact layers are where they belong again."""


@dataclass(frozen=True)
class RepairEnded:
    """A repair is over; ``exact``: all epochs of the branch were run again."""

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
