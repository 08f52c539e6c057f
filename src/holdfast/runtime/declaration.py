"""The user's declarations as plain values, and what the sources and sinks of this process were told already."""

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
    """View → its SQL, as shown to people."""

    sinks: Sequence[tuple[str, Sink]]
    settings: DurabilitySettings
    session: Mapping[str, str] = field(default_factory=dict)
    """The settings of the Spark session that change what views mean (`spark.session_meaning`)."""

    on_loss: str = "replay"
    """What happens when a member with layers is lost: ``"replay"``: the layers are brought back at once;
    ``"continue"``: the flow goes on with the partitions that are left, until it is repaired."""

    max_clock_jump: int | None = 3_600_000_000
    """Microseconds that the host's clock may run ahead of the time that has really passed; None: any number."""

    expiring: Mapping[str, nodes.Node] = field(default_factory=dict)
    """Source → the node that gives its rows without expired rows and without records that were delivered again; only
    for sources of which views do not see all rows."""

    unique: frozenset[str] = frozenset()
    """The sources whose records count once by their id."""

    branch: BranchRecord | None = None
    """The record of the branch if this flow is a branch; its history then begins with that of its parent."""


@dataclass
class ConnectorProgress:
    """What the sources and sinks of this process were told by earlier engines of it."""

    advanced: dict[str, int] = field(default_factory=dict)
    """Source → the last epoch whose taken offers the source was told of."""

    released: dict[str, int] = field(default_factory=dict)
    """Source → the last epoch whose input the source was told it may forget."""

    delivered: dict[Sink, int] = field(default_factory=dict)
    """Sink → the last epoch that it was given."""

    claim: Claim | None = None
    """The claim of the previous engine."""

    history: History = field(default_factory=History)
    """The lineage of all epochs that the previous engine knew complete."""

    pushed: HeldInput = field(default_factory=HeldInput)
    """Pushed rows of epochs that were not safe yet."""

    sinks: tuple[tuple[str, Sink], ...] | None = None
    """The sinks for which delivery numbers were written when this process last opened the flow, even if the opening
    failed later; None: this process did not open it yet."""

    fields: dict[str, tuple[nodes.Field, ...]] = field(default_factory=dict)
    """Source → the columns that it had in the previous engine."""
