"""What a flow tells about itself: the outcome of an epoch, what a recovery did, and its status.

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
    """What views are made of while some of their state is lost, and was not computed again yet
    (``on_loss="continue"``); see ``flow.approximate``."""

    since: int
    """The first epoch that is approximate. All before it are exact."""

    coverage: Coverage
    """The partitions that are left, of all; the rows of the views, as of the last exact epoch, that are in them, where
    they were counted since the very first epoch; the bytes of their copies, where those hold all of that epoch."""

    lost: tuple[int, ...]
    """The partitions whose state is lost."""

    members: tuple[str, ...]
    """The members that were lost with it."""

    sources: tuple[str, ...]
    views: tuple[str, ...]
    """What is affected: of all these sources, and in all these views, rows are missing whose keys are in the lost
    partitions."""

    def __str__(self) -> str:
        return f"approximate since epoch {self.since}: {self.coverage}"


@dataclass(frozen=True, repr=False)
class Epoch:
    """What ``flow.step()`` did."""

    epoch: int | None
    """The epoch's number; None when nothing waited and none was run."""

    changed: dict[str, int] = field(default_factory=dict)
    """View → rows of its change (retractions and insertions counted alike)."""

    rows_in: int = 0
    seconds: float = 0.0
    timings: dict[str, float] = field(default_factory=dict)
    """Where the time went: ``planning`` on the driver, then per kind of work the seconds of the slowest task of each
    stage."""

    approximate: Approximation | None = None
    """What the epoch was computed from, if not from everything; None: it is exact."""

    path: EpochPath = "stages"
    """In which way it was run: ``"resident"`` by a task that stays, ``"task"`` as a job of one task, ``"stages"`` as a
    job with exchanges, ``"rounds"`` so, too, with large rounds of loops as jobs of their own. All write the same
    layers."""

    rounds: dict[str, int] = field(default_factory=dict)
    """View → how many rounds its loop ran, the longest if it has several. A loop that several views share counts for
    the first of them."""

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
    """What opening a flow, or repairing it, had to do; see ``flow.last_recovery``."""

    epoch: int = -1
    """The last epoch of the history that was found."""

    lineage: Mapping[str, int] = field(default_factory=dict)
    """Where lineage was found → the last epoch there."""

    epochs: tuple[int, ...] = ()
    """The epochs that were computed again."""

    filled: int | None = None
    """Operators without any state were filled from their sources up to this epoch."""

    read: tuple[str, ...] = ()
    """The sources and views from whose rows they were filled."""

    otherwise: tuple[str, ...] = ()
    """The views whose text is as it was, and which another version of Holdfast or of Spark reads otherwise: they were
    filled again."""

    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Operator → the partitions of it that were computed again and written."""

    run: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Operator → the partitions in which it was run for that: also where it wrote nothing, and only its output was
    needed."""

    sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Source → the epochs whose input was read from it again. (Pushed rows that no copy has are read from memory.)"""

    logs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """View, or source whose rows are kept → the epochs at which its log was read instead of what lies behind it."""

    members: tuple[str, ...] = ()
    """The members that computed again, where each keeps its own layers."""

    repaired: tuple[int, ...] = ()
    """The epochs that had been approximate, and were run again, exactly (``flow.repair()``)."""

    layers_reused: int = 0
    layers_fetched: int = 0
    bytes_fetched: int = 0
    layers_handed: int = 0
    """Layers that a member took from another, where each keeps its own."""

    layers_ahead: int = 0
    """Layers that members had fetched beside epochs, before partitions changed hands on purpose (``flow.rescale``,
    ``flow.drain``)."""

    damaged: tuple[str, ...] = ()
    """Layers that did not have their checksum, and were set aside."""

    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Log locations that could not be used → why."""

    lost: tuple[str, ...] = ()
    """What was found to be lost, or may be: a location that was emptied, too few of them to be sure
    (``accept_loss``)."""

    followed: int | None = None
    """Up to this epoch this driver had run the epochs of the one that led before it (``hf.active_standby()``)."""

    missing: tuple[int, ...] = ()
    """Epochs whose input was skipped, or whose state is empty, since the strategy keeps nothing (``hf.gap()``)."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Phase (``lineage``, ``look``, ``fetch``, ``hand``, ``replay``) → time."""

    @property
    def epochs_replayed(self) -> int:
        return len(self.epochs)

    @property
    def work(self) -> tuple[object, ...]:
        """What was done, for telling whether anything was."""
        return self.layers_fetched, self.layers_handed, self.epochs, self.filled, len(self.damaged)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
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
    """Its query; ``(DataFrame)`` if it was declared by one."""

    operator: str | None
    """The operator that keeps its rows; None of a flow that is not open, if the log does not have the view yet."""

    approximate: bool
    """Whether some of its rows are missing (``on_loss="continue"``)."""


@dataclass(frozen=True)
class Snapshot:
    """An epoch of a flow that has a name: a consistent cut of all its state and lineage."""

    name: str
    epoch: int
    digest: str
    """The digest of the epoch's lineage, which names that state."""

    safe: bool
    """Whether ``min_replicas`` locations have all of it, so that it can be copied."""


@dataclass(frozen=True)
class BranchInfo:
    """A branch of a flow."""

    name: str
    root: int
    """The last epoch that it has in common with the flow."""

    digest: str
    """The digest of that epoch's lineage, which names the state with which it began."""

    created: float
    """When it was made: seconds since 1970."""

    bytes: int
    """What removing it would free."""

    approximate: bool = False
    """Whether it is the one with which the flow itself goes on without lost members, from their loss to
    ``flow.repair()`` (``on_loss="continue"``)."""


@dataclass(frozen=True)
class RewindInfo:
    """A rewind that a flow has made, as far back as it retains."""

    epoch: int
    """The epoch that undid others."""

    to: int
    """The epoch to which it went back: those after it were undone."""

    reason: str
    skipped: tuple[str, ...]
    """The sources of which something was skipped on the way forward again."""

    at: float
    """When it was made: seconds since 1970."""

    @staticmethod
    def of(record: Lineage) -> RewindInfo:
        """What the record of a rewind says."""
        said = record.rewind or {}
        skipped = tuple(sorted(said.get("skip", {})))
        return RewindInfo(record.epoch, said["to"], said.get("reason", ""), skipped, record.clock / 1e6)


@dataclass(frozen=True)
class UniqueStatus:
    """What the filters in front of a catalog of ids saved, since the flow was opened (``unique``)."""

    asked: int
    """So many ids came, each counted once per epoch and partition."""

    looked_up: int
    """For so many of them the catalog was searched."""

    found: int
    """So many of those were there: records that were delivered again."""

    false_positives: float
    """The share of new ids that were looked up in vain, as it was set."""

    measured_false_positives: float
    """The same as it was."""

    bytes: int
    """The filters' memory."""


@dataclass(frozen=True)
class SourceStatus:
    """A source of a flow."""

    waiting: int | None
    """How much waits behind the next epoch, in the source's own unit (rows, files); None if it does not know."""

    unique: UniqueStatus | None = None
    """What the filters in front of its catalog of ids saved; None if its records have no ids, or it has not run."""


@dataclass(frozen=True)
class SinkStatus:
    """A sink of a flow."""

    view: str
    kind: str
    """The name of its class."""

    epoch: int | None
    """The last epoch that it has; None if it cannot tell, or the flow is not open."""


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
    """Merging of layers, in the background."""

    merges: int = 0
    """How many merges were made since the flow was opened."""

    busy: bool = False
    failure: str | None = None
    """Why the last merge failed, if it did."""


@dataclass(frozen=True)
class LocationStatus:
    """A location of the log."""

    uri: str
    layers: int
    bytes: int
    counts: bool | None = None
    """Whether it counts for the safe point: one that was emptied does again when it is filled. None: not known, since
    the flow is not open."""

    failure: str | None = None
    """Why it cannot be used now, if that is so."""


@dataclass(frozen=True)
class Unsafe:
    """What is not safe yet: lost with this host, it would have to be computed again."""

    epochs: int
    bytes: int

    def __str__(self) -> str:
        if not self.epochs:
            return "nothing"
        return f"{counted(self.epochs, 'epoch')}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True)
class DurabilityStatus:
    """How safe a flow's state is."""

    strategy: str
    """How the flow's results are protected, with its settings: ``nosync``, ``passive_standby(every=16)``."""

    safe: int
    """The safe point: the last epoch that ``min_replicas`` locations have; -1 if none."""

    lineage: int
    """The last epoch whose lineage is durable."""

    levels: dict[str, dict[str, int]]
    """View → level of persistence (``local``, or a location) → the last epoch that is on it."""

    locations: tuple[LocationStatus, ...]
    unsafe: Unsafe
    back_pressure: bool
    """Whether the next epoch waits for storage (``max_unsafe``)."""

    recovery_seconds: float
    """What losing this host would cost: the time of the epochs that no location has."""

    shipped: int
    """Bytes that were written to locations since the flow was opened."""

    busy: bool
    failure: str | None
    """Why the last round of copying failed, if it did."""

    unsynced: dict[str, str] = field(default_factory=dict)
    """Local files that could not be synced → why."""


@dataclass(frozen=True)
class PlacementStatus:
    """Who keeps which partitions, where each member keeps its own layers."""

    members: dict[str, list[int]]
    """Member → its partitions."""

    tasks: int
    """Keyed tasks that were run since the flow was opened."""

    local: int
    """Those of them that found all their layers where they ran."""


@dataclass(frozen=True)
class ClockStatus:
    """The flow's clock beside the host's, in microseconds since 1970."""

    flow: int | None
    """The clock of the last epoch; None before the first."""

    host: int
    ahead: float
    """By how many seconds the flow's clock is ahead of the host's; it should be 0."""


@dataclass(frozen=True)
class RunningDriver:
    """The process that runs a flow, as its working directory says."""

    pid: int | None
    host: str | None
    since: float | None
    """Seconds since 1970."""

    lease: str | None = None
    """The lease by which it leads, if it runs under one."""

    @staticmethod
    def of(said: Mapping[str, Any] | None) -> RunningDriver | None:
        """What the lock of a working directory says; None if nobody holds it."""
        if said is None:
            return None
        return RunningDriver(said.get("pid"), said.get("host"), said.get("since"), said.get("lease"))

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Status:
    """How a flow stands."""

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
    """None where all layers are kept in one place."""

    clock: ClockStatus | None = None
    """None of a flow that is not open here."""

    approximate: Approximation | None = None
    """What the views are made of, if not of everything; then each of ``views`` says so, too. None: all is exact."""

    crash_now: tuple[Forecast, ...] = ()
    """What each loss would cost now: of the driver, of its host, of each member and of each log location."""

    owed: int = 0
    """After a rewind: so many epochs whose input is still to be taken again."""

    open: bool = True
    """Whether the flow is open here. If not, this is how its log stands, and what only an open flow knows is empty."""

    running: RunningDriver | None = None
    """Of a flow that is not open here: who runs it right now, as far as its working directory says."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        plain = asdict(self)
        plain["placement"] = plain["placement"] or {}
        plain["clock"] = plain["clock"] or {}
        plain["running"] = self.running.to_dict() if self.running is not None else None
        found: dict[str, Any] = redacted(plain)
        return found

    def rows(self) -> list[tuple[str, str]]:
        """The most of it, for people: what it is, and how it stands."""
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
