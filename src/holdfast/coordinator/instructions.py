"""Everything that a flow may have to do, as values: the results of `FlowState.handle`.

`runtime/` carries instructions out, in their order, and answers with the event that each of them names (after the →).
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
    """Enrol a location, which is new or was emptied, in this log → `LocationFailed` if that fails."""

    location: int
    roster: Roster
    identity: str
    was_known: bool
    """Whether the location had another identity before: then it has lost what it held."""


@dataclass(frozen=True)
class WriteLineage:
    """Write the lineage of the epochs after < e ≤ upto to a location."""

    location: int
    after: int
    upto: int


@dataclass(frozen=True)
class ShipLayers:
    """Copy layers to a location → `LayersShipped`. ``since``: trace → the epoch up to which it may be collapsed."""

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
    """Note that a location failed: do not use it for a while."""

    location: int
    error: HoldfastError


@dataclass(frozen=True)
class NoteFailure:
    """Report why a round failed although its location did not."""

    location: int
    error: HoldfastError


@dataclass(frozen=True)
class RepairLayers:
    """Recover local layers, which are damaged or missing, before the next epoch."""

    damage: tuple[LogDamaged, ...]


@dataclass(frozen=True)
class CheckClaim:
    """Read the greatest claim to the log at a location → `ClaimSeen`, or `LocationFailed`."""

    location: int


@dataclass(frozen=True)
class Stop:
    """Stop this driver: another one has taken over."""

    error: Fenced


@dataclass(frozen=True)
class RemoveCopies:
    """Remove layers of a location that no reader needs any more."""

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
    """Merge the segments of lineage in a location, so that there are few."""

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
    """Ask for another round at a location, soon."""

    location: int


@dataclass(frozen=True)
class HurryRounds:
    """Make rounds at once: something waits for them."""


@dataclass(frozen=True)
class ReleaseInput:
    """Tell the sources that they may forget the input that epochs up to this one took."""

    upto: int


# -- epochs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountEpoch:
    """Append the lineage of an epoch to the stash → `EpochWritten`, and then `EpochCounted`; or `EpochFailed`."""

    lineage: Lineage


@dataclass(frozen=True)
class AdvanceSources:
    """Tell the sources that an epoch took the offers in its lineage."""

    lineage: Lineage


@dataclass(frozen=True)
class RequestCopies:
    """Ask for rounds at all locations, soon: an epoch is complete."""


@dataclass(frozen=True)
class AwaitSafe:
    """Wait until an epoch is safe. If that fails, do not carry out the instructions that follow."""

    epoch: int


@dataclass(frozen=True)
class Commit:
    """Give a sink the change of the epoch that has just completed → `CommitBegan`, `SinkAnswered`."""

    sink: int
    epoch: int


@dataclass(frozen=True)
class CatchUp:
    """Give a sink all epochs up to ``upto`` that it lacks, from the logs of its view → `CommitBegan`, `SinkAnswered`,
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
    """Look at the membership, assign the partitions to the members that are there, and bring them the layers that they
    lack. ``settle``: take the assignment at rest; else, after a loss, only lost partitions move."""

    settle: bool


@dataclass(frozen=True)
class HandOver:
    """Make other members the owners of partitions; with ``recover``, bring them the layers that they lack."""

    moves: Mapping[int, str]
    recover: bool = True


@dataclass(frozen=True)
class BringOver:
    """Bring the layers of a leaving member to the members that own its partitions from now on → `MemberLeft`."""

    member: str


@dataclass(frozen=True)
class BeginBranch:
    """Have the remaining members begin a branch with their exact layers; or `BranchImpossible`."""


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
