"""What a flow tells its users: the result of an epoch, what a recovery did, and the flow's status.

The file is long because its classes are the parts of one status, and are read together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from holdfast.coordinator.forecast import Forecast, most_telling
from holdfast.coordinator.lineage import Lineage
from holdfast.foundation.choices import EpochPath
from holdfast.foundation.counted import counted
from holdfast.foundation.first_names import first_names
from holdfast.reporting.redaction import redacted
from holdfast.results.query_results import Coverage


@dataclass(frozen=True)
class Approximation:
    """What the views are computed from while some of their state is lost and not yet computed again
    (``on_loss="continue"``); see ``flow.approximate``."""

    since: int
    """The first approximate epoch. All epochs before it are exact."""

    coverage: Coverage
    """How much is left as of the last exact epoch: the partitions; the rows of the views, if they were counted since
    the very first epoch; the bytes of the views' copies, if these are complete as of that epoch."""

    lost: tuple[int, ...]
    """The partitions whose state is lost."""

    members: tuple[str, ...]
    """The members that were lost with that state."""

    sources: tuple[str, ...]
    """The sources whose rows are missing where their keys are in the lost partitions."""

    views: tuple[str, ...]
    """The views in which rows are missing whose keys are in the lost partitions."""

    def __str__(self) -> str:
        return f"approximate since epoch {self.since}: {self.coverage}"


@dataclass(frozen=True, repr=False)
class Epoch:
    """The result of ``flow.step()``."""

    epoch: int | None
    """The epoch's number; None if no input waited and no epoch was run."""

    changed: dict[str, int] = field(default_factory=dict)
    """View → rows of its change (retractions and insertions counted alike)."""

    rows_in: int = 0
    """Rows that were taken from sources."""

    seconds: float = 0.0
    """The latency of the epoch."""

    timings: dict[str, float] = field(default_factory=dict)
    """Where the time went, in seconds: ``planning`` on the driver, then for each kind of work the sum over the stages,
    each with its slowest task."""

    approximate: Approximation | None = None
    """What the epoch was computed from if state is lost; None: the epoch is exact."""

    path: EpochPath = "stages"
    """How the epoch was run: ``"resident"``: by a task that stays; ``"task"``: as a job of one task; ``"stages"``: as a
    job with exchanges; ``"rounds"``: the same, with large rounds of loops as separate jobs. All write the same
    layers."""

    rounds: dict[str, int] = field(default_factory=dict)
    """View → how many rounds its loop ran; the greatest number if it has several loops. A loop that several views share
    counts for the first of them."""

    @property
    def idle(self) -> bool:
        return self.epoch is None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "idle": self.idle}

    def __repr__(self) -> str:
        if self.epoch is None:
            return "Epoch(idle)"
        changed = first_names([f"{view} {rows:,}" for view, rows in self.changed.items()]) or "nothing"
        exact = "" if self.approximate is None else f", {self.approximate}"
        took = f"{self.seconds * 1000:,.0f} ms"
        return f"Epoch({self.epoch}: {counted(self.rows_in, 'row')} in; changed: {changed}; {took}{exact})"


@dataclass(frozen=True, repr=False)
class Recovery:
    """What a recovery did when a flow was opened or repaired; see ``flow.last_recovery``."""

    epoch: int = -1
    """The last epoch of the history that was found."""

    lineage: Mapping[str, int] = field(default_factory=dict)
    """Place where lineage was found → the last epoch there."""

    epochs: tuple[int, ...] = ()
    """The epochs that were computed again."""

    filled: int | None = None
    """The epoch up to which operators without state were filled; None: none was filled."""

    read: tuple[str, ...] = ()
    """The sources and views from whose rows operators were filled."""

    otherwise: tuple[str, ...] = ()
    """The views that were filled again because another version of Holdfast or of Spark plans their unchanged text
    differently."""

    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Operator → its partitions that were computed again and written."""

    run: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Operator → the partitions in which it was run, including those where it wrote nothing and only its output was
    needed."""

    sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Source → the epochs whose input was read from it again. (Pushed rows that no copy has are read from memory.)"""

    logs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """View, or source whose rows are kept → the epochs as of which its log was read, in place of the operators and
    sources upstream of it."""

    members: tuple[str, ...] = ()
    """The members that computed epochs again, if each member keeps its own layers."""

    repaired: tuple[int, ...] = ()
    """The approximate epochs that were run again as exact ones (``flow.repair()``)."""

    layers_reused: int = 0
    """Local layers that were used as they were."""

    layers_fetched: int = 0
    """Layers that were fetched from log locations."""

    bytes_fetched: int = 0
    """The bytes of the fetched layers."""

    layers_handed: int = 0
    """Layers that a member took from another member, if each member keeps its own layers."""

    layers_ahead: int = 0
    """Layers that members fetched beside epochs before partitions changed owners on purpose (``flow.rescale``,
    ``flow.drain``)."""

    damaged: tuple[str, ...] = ()
    """Layers with a wrong checksum, which were set aside."""

    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Log location that could not be used → the reason."""

    lost: tuple[str, ...] = ()
    """What is lost, or may be lost: a location that was emptied; too few locations to be sure (``accept_loss``)."""

    followed: int | None = None
    """The last epoch of the leader that this driver had run while it stood by (``hf.active_standby()``); None if it did
    not follow."""

    missing: tuple[int, ...] = ()
    """Epochs whose input was skipped, or whose state is empty, because the strategy keeps nothing (``hf.gap()``)."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Phase (``lineage``, ``look``, ``fetch``, ``hand``, ``replay``) → seconds."""

    @property
    def epochs_replayed(self) -> int:
        return len(self.epochs)

    @property
    def work(self) -> tuple[object, ...]:
        """A value that differs between two records if one of them has done more."""
        return self.layers_fetched, self.layers_handed, self.epochs, self.filled, len(self.damaged)

    def to_dict(self) -> dict[str, Any]:
        """Return the recovery as plain values, for JSON."""
        found: dict[str, Any] = redacted({**asdict(self), "epochs_replayed": self.epochs_replayed})
        return found

    def __repr__(self) -> str:
        filled = "" if self.filled is None else f"; filled up to epoch {self.filled}"
        lost = f"; lost: {len(self.lost)}" if self.lost else ""
        ahead = f" and {self.layers_ahead:,} ahead" if self.layers_ahead else ""
        return (
            f"Recovery(up to epoch {self.epoch}: {self.layers_reused:,} layers there, {self.layers_fetched:,} fetched"
            f"{ahead}; {self.epochs_replayed:,} epochs computed again{filled}{lost})"
        )


@dataclass(frozen=True)
class ViewStatus:
    """A view of a flow."""

    sql: str
    """Its query; ``(DataFrame)`` if it was declared by a DataFrame."""

    operator: str | None
    """The id of the operator that keeps its rows; None if the flow is not open and its log does not have the view
    yet."""

    approximate: bool
    """Whether some of its rows are missing (``on_loss="continue"``)."""


@dataclass(frozen=True)
class Snapshot:
    """A named epoch of a flow: a consistent cut of all its state and lineage."""

    name: str
    epoch: int
    digest: str
    """The digest of the epoch's lineage, which identifies the state."""

    safe: bool
    """Whether ``min_replicas`` locations have the whole snapshot, so that it can be copied."""


@dataclass(frozen=True)
class BranchInfo:
    """A branch of a flow."""

    name: str
    root: int
    """The last epoch that the branch has in common with the flow."""

    digest: str
    """The digest of the root's lineage, which identifies the state with which the branch began."""

    created: float
    """When the branch was made: seconds since 1970."""

    bytes: int
    """The bytes that removing the branch would free."""

    approximate: bool = False
    """Whether the flow itself goes on with this branch, without lost members, until ``flow.repair()``
    (``on_loss="continue"``)."""


@dataclass(frozen=True)
class RewindInfo:
    """A rewind of a flow; those within its retention are listed."""

    epoch: int
    """The epoch that undid earlier ones."""

    to: int
    """The epoch to which the flow went back: the epochs after it were undone."""

    reason: str
    skipped: tuple[str, ...]
    """The sources of which input was skipped when the undone input was taken again."""

    at: float
    """When the rewind was made: seconds since 1970."""

    @staticmethod
    def of(record: Lineage) -> RewindInfo:
        """Return the rewind that a lineage records."""
        said = record.rewind or {}
        skipped = tuple(sorted(said.get("skip", {})))
        return RewindInfo(record.epoch, said["to"], said.get("reason", ""), skipped, record.clock / 1e6)


@dataclass(frozen=True)
class UniqueStatus:
    """The work that filters in front of a catalog of ids saved since the flow was opened (``unique``)."""

    asked: int
    """The number of ids that came, each counted once per epoch and partition."""

    looked_up: int
    """The number of ids for which the catalog was searched."""

    found: int
    """The number of ids that the catalog had: records that were delivered again."""

    false_positives: float
    """The share of new ids that may be looked up in vain, as configured."""

    measured_false_positives: float
    """The share of new ids that were looked up in vain, as measured."""

    bytes: int
    """The memory of the filters."""


@dataclass(frozen=True)
class SourceStatus:
    """A source of a flow."""

    waiting: int | None
    """How much input waits, in the source's own unit (rows, files); None if the source does not know."""

    unique: UniqueStatus | None = None
    """The work that the filters in front of its catalog of ids saved; None if its records have no ids, or no epoch has
    run yet."""


@dataclass(frozen=True)
class SinkStatus:
    """A sink of a flow."""

    view: str
    kind: str
    """The name of its class."""

    epoch: int | None
    """The last epoch that the sink has; None if it cannot tell, or the flow is not open."""


@dataclass(frozen=True)
class TraceStatus:
    """The state that one operator keeps in one trace."""

    trace: str
    kind: str
    layers: int
    bytes: int


@dataclass(frozen=True)
class Latency:
    """Seconds per epoch, over the last 100 epochs."""

    median: float = 0.0
    p99: float = 0.0

    def __str__(self) -> str:
        if not self.p99:
            return "no epoch since the flow was opened"
        return f"median {self.median * 1000:,.0f} ms, p99 {self.p99 * 1000:,.0f} ms"


@dataclass(frozen=True)
class MaintenanceStatus:
    """The merging of layers in the background."""

    merges: int = 0
    """How many merges were made since the flow was opened."""

    busy: bool = False
    failure: str | None = None
    """Why the last merge failed; None if it succeeded."""


@dataclass(frozen=True)
class LocationStatus:
    """A location of the log."""

    uri: str
    layers: int
    bytes: int
    counts: bool | None = None
    """Whether the location counts for the safe point; a location that was emptied counts again once it is filled. None:
    not known, because the flow is not open."""

    failure: str | None = None
    """Why the location cannot be used now; None if it can."""


@dataclass(frozen=True)
class Unsafe:
    """The epochs that are not safe yet: if this host is lost, they must be computed again."""

    epochs: int
    bytes: int

    def __str__(self) -> str:
        if not self.epochs:
            return "nothing"
        return f"{counted(self.epochs, 'epoch')}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True)
class DurabilityStatus:
    """How durable a flow's state is."""

    strategy: str
    """The strategy that protects the flow's results, with its settings: ``nosync``, ``passive_standby(every=16)``."""

    safe: int
    """The safe point: the last epoch that ``min_replicas`` locations have; -1 if none."""

    lineage: int
    """The last epoch whose lineage is durable."""

    levels: dict[str, dict[str, int]]
    """View → persistence level → the last epoch that is on it. Levels: ``memory``, ``disk`` and the URI of each
    location; of a flow that is not open, ``local`` and the URI of each location."""

    locations: tuple[LocationStatus, ...]
    unsafe: Unsafe
    back_pressure: bool
    """Whether the next epoch waits for storage (``max_unsafe``)."""

    recovery_seconds: float
    """What losing this host would cost, in seconds: the time to compute the epochs that are not safe again."""

    shipped: int
    """Bytes that were written to locations since the flow was opened."""

    busy: bool
    failure: str | None
    """Why the last round of copying failed; None if it succeeded."""

    unsynced: dict[str, str] = field(default_factory=dict)
    """Trace whose local files could not be synced → the reason."""


@dataclass(frozen=True)
class PlacementStatus:
    """The owners of partitions, if each member keeps its own layers."""

    members: dict[str, list[int]]
    """Member → its partitions."""

    tasks: int
    """How many keyed tasks ran since the flow was opened."""

    local: int
    """How many of these tasks found all their layers on the member where they ran."""


@dataclass(frozen=True)
class ClockStatus:
    """The flow's clock compared with the host's clock."""

    flow: int | None
    """The clock of the last epoch, in microseconds since 1970; None before the first epoch."""

    host: int
    """The host's clock, in microseconds since 1970."""

    ahead: float
    """The seconds by which the flow's clock is ahead of the host's; it should be 0."""


@dataclass(frozen=True)
class RunningDriver:
    """The process that runs a flow, according to the flow's working directory."""

    pid: int | None
    host: str | None
    since: float | None
    """When it opened the flow: seconds since 1970."""

    lease: str | None = None
    """The name of the lease under which it leads; None without a lease."""

    @staticmethod
    def of(said: Mapping[str, Any] | None) -> RunningDriver | None:
        """Return the driver that the lock of a working directory names; None if the lock is free."""
        if said is None:
            return None
        return RunningDriver(said.get("pid"), said.get("host"), said.get("since"), said.get("lease"))

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Status:
    """The status of a flow."""

    flow: str
    log: str
    """The working directory."""

    epoch: int
    """The last complete epoch; -1 before the first."""

    views: dict[str, ViewStatus]
    sources: dict[str, SourceStatus]
    sinks: tuple[SinkStatus, ...]
    traces: tuple[TraceStatus, ...]
    latency: Latency
    partitions: int
    maintenance: MaintenanceStatus
    durability: DurabilityStatus
    placement: PlacementStatus | None = None
    """The owners of partitions; None if all layers are in one directory."""

    clock: ClockStatus | None = None
    """The flow's clock; None if the flow is not open in this process."""

    approximate: Approximation | None = None
    """What the views are computed from if state is lost; each affected view in ``views`` says so, too. None: the views
    are exact."""

    crash_now: tuple[Forecast, ...] = ()
    """What a loss would cost now: of the driver, of its host, of each member and of each log location."""

    owed: int = 0
    """After a rewind: the number of epochs whose input is still to be taken again."""

    open: bool = True
    """Whether the flow is open in this process. If not, the status is read from its log, and fields that only an open
    flow knows are empty."""

    running: RunningDriver | None = None
    """If the flow is not open in this process: the process that runs it now, according to its working directory."""

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values, for JSON."""
        plain = asdict(self)
        plain["placement"] = plain["placement"] or {}
        plain["clock"] = plain["clock"] or {}
        plain["running"] = self.running.to_dict() if self.running is not None else None
        found: dict[str, Any] = redacted(plain)
        return found

    def rows(self) -> list[tuple[str, str]]:
        """The main parts of the status, as (name, text) for people."""
        unsafe, waiting = self.durability.unsafe, {name: one.waiting for name, one in self.sources.items()}
        found = [
            ("flow", self.flow),
            ("epoch", "none yet" if self.epoch < 0 else f"{self.epoch:,}"),
            ("safe", "nothing yet" if self.durability.safe < 0 else f"up to epoch {self.durability.safe:,}"),
            ("at risk", str(unsafe)),
            ("waiting", first_names([f"{name} {count:,}" for name, count in waiting.items() if count]) or "nothing"),
            ("views", first_names(self.views) or "none"),
            ("sinks", first_names([f"{sink.view} → {sink.kind}" for sink in self.sinks]) or "none"),
            ("latency", str(self.latency)),
        ]
        found += [(f"a loss of {title}", str(each)) for title, each in most_telling(self.crash_now, locations=False)]
        if self.owed:
            found.append(("rewound", f"the input of {self.owed:,} epochs is still to be taken again"))
        return found if self.approximate is None else [*found, ("exact", f"no: {self.approximate}")]

    def __repr__(self) -> str:
        return f"Status({'; '.join(f'{name}: {text}' for name, text in self.rows())})"

    def _repr_html_(self) -> str:
        lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.rows())
        return f"<table>{lines}</table>"
