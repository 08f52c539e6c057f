"""Everything that a flow may have to do, as values: what `FlowState.handle` gives.

`runtime/` carries instructions out, in the order in which they are given, and answers with the event that each names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.coordinator.copy_plan import Compact, Ship
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.roster import Roster
from holdfast.errors import Fenced, HoldfastError, LogDamaged
from holdfast.trace.name import LayerName

# -- copying ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """List these traces at a location → `LocationSeen`, or `LocationFailed`."""

    location: int
    traces: tuple[str, ...]


@dataclass(frozen=True)
class Enrol:
    """Make a location, which is new or was emptied, one of this log → `LocationFailed` if it cannot be."""

    location: int
    roster: Roster
    identity: str
    was_known: bool
    """Whether it was another one before: then it has lost what it held."""


@dataclass(frozen=True)
class WriteLineage:
    """Write the lineage after < e ≤ upto to a location."""

    location: int
    after: int
    upto: int


@dataclass(frozen=True)
class ShipLayers:
    """Copy layers to a location → `LayersShipped`. ``since``: trace → up to which epoch it may be collapsed."""

    location: int
    ships: tuple[Ship, ...]
    since: Mapping[str, int]


@dataclass(frozen=True)
class SetAside:
    """Take a damaged layer of a location out of use."""

    location: int
    trace: str
    name: LayerName


@dataclass(frozen=True)
class NoteTrouble:
    """A location failed: leave it alone for a while."""

    location: int
    error: HoldfastError


@dataclass(frozen=True)
class NoteFailure:
    """A round failed although its location did not: say why."""

    location: int
    error: HoldfastError


@dataclass(frozen=True)
class RepairLayers:
    """Local layers are damaged, or missing: recover them before the next epoch."""

    damage: tuple[LogDamaged, ...]


@dataclass(frozen=True)
class CheckClaim:
    """Ask a location who claimed the log last → `ClaimSeen`, or `LocationFailed`."""

    location: int


@dataclass(frozen=True)
class Stop:
    """Another driver has taken over: this one must stop."""

    error: Fenced


@dataclass(frozen=True)
class RemoveCopies:
    """Remove layers of a location that nobody needs any more."""

    location: int
    layers: tuple[tuple[str, LayerName], ...]


@dataclass(frozen=True)
class CompactCopies:
    """Merge layers inside a location → `LayersShipped`."""

    location: int
    merges: tuple[MergeCopies, ...]


@dataclass(frozen=True)
class MergeCopies:
    """One merge: the layers ``compact.names`` become the layer that ``ship`` describes."""

    compact: Compact
    ship: Ship
    among: tuple[LayerName, ...]
    since: int
    last: int


@dataclass(frozen=True)
class MergeLineage:
    """Have few segments of lineage in a location."""

    location: int


@dataclass(frozen=True)
class ForgetTraces:
    """Remove all traces but these from a location (-1: the local directories) → `TracesForgotten`."""

    location: int
    kept: frozenset[str]


@dataclass(frozen=True)
class WriteRoster:
    """Write a roster to a location → `RosterWritten`."""

    location: int
    roster: Roster
    identity: str


@dataclass(frozen=True)
class RequestRound:
    """Have another round made at a location, soon."""

    location: int


@dataclass(frozen=True)
class HurryRounds:
    """Have rounds made at once: something waits for them."""


@dataclass(frozen=True)
class ReleaseInput:
    """Tell the sources to forget what epochs up to this one took."""

    upto: int


# -- epochs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountEpoch:
    """Append the line of an epoch to the stash → `EpochWritten`, and then `EpochCounted`; or `EpochFailed`."""

    lineage: Lineage


@dataclass(frozen=True)
class AdvanceSources:
    """Tell the sources that an epoch took what its lineage says."""

    lineage: Lineage


@dataclass(frozen=True)
class RequestCopies:
    """Have rounds made at all locations, soon: an epoch is complete."""


@dataclass(frozen=True)
class AwaitSafe:
    """Wait until an epoch is safe. If that fails, nothing that follows is to be done now."""

    epoch: int


@dataclass(frozen=True)
class Commit:
    """Give a sink the change of the epoch that has just completed → `CommitBegan`, `SinkAnswered`."""

    sink: int
    epoch: int


@dataclass(frozen=True)
class CatchUp:
    """Give a sink all epochs up to this one that it lacks, from the logs of its view → `CommitBegan`, `SinkAnswered`,
    for each."""

    sink: int
    upto: int


@dataclass(frozen=True)
class RemoveLayers:
    """Remove the layers of an epoch that failed, everywhere → `LayersRemoved`."""

    digest: str


# -- members ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refresh:
    """Look who is there, have partitions kept by those, and bring what they lack. ``settle``: take the assignment at
    rest."""

    settle: bool


@dataclass(frozen=True)
class HandOver:
    """Have partitions kept by other members, and bring what these lack. ``recover``: layers are to be brought."""

    moves: Mapping[int, str]
    recover: bool = True


@dataclass(frozen=True)
class BringOver:
    """A member is to go: bring what it keeps to those that keep it from now on → `MemberLeft`."""

    member: str


@dataclass(frozen=True)
class BeginBranch:
    """Have the members that are left begin a branch with their exact layers; or `BranchImpossible`."""


Instruction = (
    Look
    | Enrol
    | WriteLineage
    | ShipLayers
    | SetAside
    | NoteTrouble
    | NoteFailure
    | RepairLayers
    | CheckClaim
    | Stop
    | RemoveCopies
    | CompactCopies
    | MergeLineage
    | ForgetTraces
    | WriteRoster
    | RequestRound
    | HurryRounds
    | ReleaseInput
    | CountEpoch
    | AdvanceSources
    | RequestCopies
    | AwaitSafe
    | Commit
    | CatchUp
    | RemoveLayers
    | Refresh
    | HandOver
    | BringOver
    | BeginBranch
)
