"""What the user declared, as plain values, and what the connectors of this process know already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.connectors.sink import Sink
from holdfast.connectors.source import Source
from holdfast.coordinator.claim import Claim
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.history import History
from holdfast.log.branches import BranchRecord
from holdfast.log.location import Location
from holdfast.plan import nodes
from holdfast.runtime.recovery.held_input import HeldInput


@dataclass(frozen=True)
class Declaration:
    """A flow, as declared."""

    name: str
    local: Path
    """The directory of the local layers."""

    locations: tuple[Location, ...]
    """Where the log is kept durably."""

    sources: Mapping[str, Source]
    views: Mapping[str, nodes.Node]
    texts: Mapping[str, str]
    """View → its SQL, for people."""

    sinks: Sequence[tuple[str, Sink]]
    settings: DurabilitySettings
    session: Mapping[str, str] = field(default_factory=dict)
    """What the Spark session says that changes what views mean (`spark.session_meaning`)."""

    on_loss: str = "replay"
    """What the loss of a member means that keeps layers: ``"replay"``, what was lost is brought back at once;
    ``"continue"``, the flow goes on with what is left until it is repaired."""

    max_clock_jump: int | None = 3_600_000_000
    """Microseconds by which the host's clock may go ahead of the time that has passed; None: any."""

    expiring: Mapping[str, nodes.Node] = field(default_factory=dict)
    """Source → its rows without those that have expired, or that were delivered again; only of sources of which views
    do not see all rows."""

    unique: frozenset[str] = frozenset()
    """The sources whose records count once by their id."""

    branch: BranchRecord | None = None
    """Which branch it is, if it is one: its history begins with its parent's."""


@dataclass
class ConnectorProgress:
    """What the connectors of this process know already, from an engine before this one."""

    advanced: dict[str, int] = field(default_factory=dict)
    """Source → the last epoch of which it was told what it took."""

    released: dict[str, int] = field(default_factory=dict)
    """Source → the last epoch of which it was told that it may forget what it took."""

    delivered: dict[Sink, int] = field(default_factory=dict)
    """Sink → the last epoch that it was given."""

    claim: Claim | None = None
    """The claim of the engine before this one."""

    history: History = field(default_factory=History)
    """The lineage of all epochs that it completed."""

    pushed: HeldInput = field(default_factory=HeldInput)
    """Rows that are in no source, of epochs that were not safe yet."""

    sinks: tuple[tuple[str, Sink], ...] | None = None
    """The sinks that were written down when the flow was opened last, even in vain; None: it was not."""

    fields: dict[str, tuple[nodes.Field, ...]] = field(default_factory=dict)
    """Source → the columns that it had."""
