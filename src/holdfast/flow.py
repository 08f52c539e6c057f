"""The user's handle: a flow with its sources, views and sinks.

A declaration is only recorded: it does not open the log. The first ``step``, ``run`` or ``read`` makes an `Engine` for
all declarations; after another declaration, the next such call makes a new engine, which opens the log again.

The file is long because it is the public surface in one class: most of it is the documentation of its methods.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

from holdfast.connectors.file_form import InferredFiles
from holdfast.connectors.input import Input, KeyedInput, PushedRows, same_input
from holdfast.connectors.keyed_source import KeyedSource
from holdfast.connectors.sink import Sink, check_target
from holdfast.connectors.source import Source
from holdfast.connectors.versions import OnMissing, missing, versions
from holdfast.coordinator.auto_partitions import AutoPartitions, partitions_for
from holdfast.errors import (
    DeclarationError,
    FlowBusy,
    HoldfastError,
    LogDamaged,
    LogUnreadable,
    StoreError,
    TasksLost,
    UnknownName,
)
from holdfast.foundation import arguments
from holdfast.foundation.choices import OnLoss, Until
from holdfast.foundation.first_names import first_names
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.frontend.catalog import Catalog
from holdfast.frontend.loop_queries import Bounded, Iteration, Query, query_text
from holdfast.frontend.unique_ids import UniqueIds, parse_unique
from holdfast.frontend.user_functions import Function
from holdfast.guarantees.guarantee import Guarantee, check_possible, check_sink, choose, parse_guarantee
from holdfast.guarantees.prediction import SinkKind
from holdfast.guarantees.strategies import StrategyName
from holdfast.guarantees.strategy import Strategy
from holdfast.operators.loop import loop_bounds
from holdfast.plan import nodes
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.schema import parse_schema
from holdfast.queries.subscription import Subscription, batch_end, check_since
from holdfast.reporting.activity import doing
from holdfast.reporting.redaction import logger, shown
from holdfast.results.flow_results import Approximation, BranchInfo, Epoch, Recovery, RewindInfo, Snapshot, Status
from holdfast.results.view_results import Found
from holdfast.runtime import redeclaration
from holdfast.runtime.background_run import BackgroundRun
from holdfast.runtime.interrupts import stopping
from holdfast.runtime.redeclaration import same_again
from holdfast.runtime.settings import parse_clock_jump, parse_settings, working_directory
from holdfast.runtime.turns import Turns
from holdfast.spark.flow_members import FlowMembers, H
from holdfast.spark.flow_tables import FlowTables
from holdfast.standby.events import LeaseEvent
from holdfast.standby.lease import Lease
from holdfast.task.key_lookup import question

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.branch import Branch
    from holdfast.inspect.flow_plan import FlowPlan
    from holdfast.inspect.unopened_flow import UnopenedLog
    from holdfast.log.branches import BranchRecord
    from holdfast.log.location import Location
    from holdfast.plan.drawing import Drawing
    from holdfast.runtime.declaration import ConnectorProgress
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.prepared_flow import PreparedFlow
    from holdfast.runtime.telemetry import Telemetry
    from holdfast.spark.decommissioning import DecommissionWatch
    from holdfast.spark.placed_work import PlacedWork
    from holdfast.spark.planning import Planner
    from holdfast.spark.runner import SparkRunner

    Place: TypeAlias = str | Path | Location

_MOST_ROUNDS = 2**31 - 2
_BEFORE_LEAVING = 5.0
"""Seconds for which `Flow.drain` waits for copies to be complete, before the member hands over the other layers."""

_EPOCHS = logger("holdfast.epochs")
_RECOVERY = logger("holdfast.recovery")


class Flow:
    """SQL views over changing inputs, kept up to date on Spark.

    ``log`` is the place of the flow's state; a flow that is made again on the same log goes on where it was. It is a
    directory, an address that pyarrow or fsspec can open (``s3://bucket/path``), or a list of these: then each location
    gets a complete copy, in the background. An epoch (one batch of input) is *safe* when ``min_replicas`` locations
    have it. Epochs do not wait for that, unless more is unsafe than ``max_unsafe`` allows (``"512MB"``, or a number of
    epochs): then the next epoch waits. Any ``min_replicas - 1`` locations may be lost without losing a safe epoch. If
    more locations are missing or emptied when the flow is opened, it raises `TooFewLocations`; with ``accept_loss`` it
    goes on with what is left, and `last_recovery` says what may be lost.
    ``local`` is the directory of the working files, by default in the first location that is a local directory.

    Without ``spark`` a local session is started when it is needed. ``partitions`` is the number of tasks per stage (by
    default one per core); it may change from run to run. With ``"auto"`` it follows the executors while the flow runs:
    one partition per core, changed between two epochs after the number of cores has been stable for some seconds.
    ``retain`` says how far back views can be read: a number of epochs, a time such as ``"24h"``, or ``"all"``.

    ``guarantee`` says how often sinks get each row, whatever crashes: ``"exactly-once"``, ``"at-least-once"`` or
    ``"at-most-once"``; a sink that cannot keep it is refused. ``strategy`` says how results are protected:
    ``hf.nosync()`` (the default, described above), ``hf.synchronous_log()``, ``hf.aligned_snapshot(…)``,
    ``hf.passive_standby(…)``, ``hf.upstream_backup(…)``, ``hf.active_standby()`` or ``hf.gap()``, or the name of one. A
    guarantee without a strategy chooses one. `explain` says what a crash can do.

    ``on_loss`` says what happens when an executor is lost: ``"replay"``: the flow goes on, exactly; ``"terminate"``: it
    stops with `MemberLost`; ``"continue"``: it goes on at once without the state that was lost with a host, and epochs
    and views are marked as approximate (`approximate`) until `repair`. ``detection_timeout``: the number of seconds
    after which a silent executor counts as lost, in a session that the flow starts (for your own session:
    ``hf.detection(seconds)``).

    ``max_clock_jump``: by how much the host's clock may jump ahead of the time that has really passed, if views or
    ``expires`` depend on the clock (None: by any time). After a larger jump a step raises `ClockJumped`, until the
    clock is corrected or you call `accept_clock`. A flow that was down for less than 30 days is not affected.

    All methods may be called from any thread. Calls that run epochs, declare or read take turns, in the order of the
    calls: a call waits for the running epoch, never for another thread's whole `run`. Code that the flow calls during
    an epoch (functions of sinks, your own sources and sinks) may push to inputs, read, and ask for the status; a call
    that would wait for that same epoch raises `FlowBusy`. ``on_epoch`` and membership handlers are called between
    epochs, or concurrently with them, and may call all methods.
    """

    def __init__(
        self,
        name: str,
        log: Place | Sequence[Place],
        spark: SparkSession | None = None,
        partitions: int | Literal["auto"] | None = None,
        *,
        retain: int | str = 1000,
        min_replicas: int = 1,
        max_unsafe: int | str | None = None,
        guarantee: Guarantee | None = None,
        strategy: Strategy | StrategyName | None = None,
        local: str | Path | None = None,
        on_loss: OnLoss = "replay",
        detection_timeout: float | None = None,
        accept_loss: bool = False,
        max_clock_jump: str | None = "1h",
    ) -> None:
        if not name or not isinstance(name, str):
            raise DeclarationError(f"flow: the name must be a text, not {name!r}")
        subject = f"flow '{name}'"
        self._follows_cores = AutoPartitions() if partitions == "auto" else None
        if partitions == "auto":
            partitions = None
        elif partitions is not None:
            partitions = arguments.whole(subject, "partitions", partitions, 1, 256)
        if spark is not None:
            arguments.session(subject, spark)
        if detection_timeout is not None:
            detection_timeout = arguments.number(subject, "detection_timeout", detection_timeout, 1.0)
        if local is not None:
            arguments.path(subject, "local", local)
        arguments.flag(subject, "accept_loss", accept_loss)
        self.name = name
        self._guarantee = parse_guarantee(subject, guarantee)
        self._strategy_chosen = strategy is not None or self._guarantee is None
        if self._guarantee is not None and strategy is None:
            strategy = choose(self._guarantee, ())
        self._places, self._settings = parse_settings(
            name, log, retain, min_replicas, max_unsafe, "nosync" if strategy is None else strategy, accept_loss
        )
        if self._guarantee is not None:
            check_possible(subject, self._guarantee, self._settings.strategy)
        if on_loss not in ("replay", "terminate", "continue"):
            raise DeclarationError(
                f"flow '{name}': on_loss must be 'replay', 'terminate' or 'continue', not {on_loss!r}", flow=name
            )
        self._members = FlowMembers(name, on_loss == "terminate")
        self._on_loss = on_loss
        self._max_clock_jump = parse_clock_jump(name, max_clock_jump)
        self._accepts_clock = False
        self._detection_timeout = detection_timeout
        self._local = None if local is None else Path(local)
        self._record: BranchRecord | None = None
        """The description of the branch, if the flow is one."""

        self._spark = spark
        self._partitions = partitions
        self._catalog = Catalog()
        self._sinks: list[tuple[str, Sink]] = []
        self._engine: Engine | None = None
        self._ready: PreparedFlow | None = None
        self._reading: SparkSession | None = None
        """The session whose settings are those of ``_meaning``."""

        self._planning: Planner | None = None
        self._live = FlowTables(self)
        self._meaning: dict[str, str] = {}
        """The settings of the session that change what views mean (time zone, ANSI mode, …)."""

        self._told: ConnectorProgress | None = None
        self._moving: threading.Thread | None = None
        """The thread that rescales a flow with ``partitions="auto"``."""

        self._recovery: Recovery | None = None
        self._runner: SparkRunner | None = None
        """The object that runs epochs, or ran them last."""

        self._placement: PlacedWork | None = None
        self._leaving: DecommissionWatch | None = None
        self._closed = False
        self._closed_for = ""
        self._expires: dict[str, tuple[str | None, UniqueIds | None]] = {}
        """Input → its ``expires``, and its settings of unique ids."""

        self._stopping = False
        self._turns = Turns(name)
        self._beside: BackgroundRun | None = None
        self._runs = 0
        self._counting = threading.Lock()
        self._completed = threading.Condition()
        """Notified when an epoch is complete, and when the flow ends."""

        self._telemetry: Telemetry | None = None
        self._lease: Lease | None = None
        """The lease under which the flow runs."""

        self._branches: weakref.WeakValueDictionary[str, Branch] = weakref.WeakValueDictionary()
        """Name → handle, for the branches that this process has opened."""

        self._standing_by = False
        """Whether the flow waits for the lease: no call may open the log meanwhile."""

    # -- declarations ---------------------------------------------------------------------------------------------

    def source(
        self,
        name: str,
        source: Source,
        *,
        expires: str | None = None,
        key: str | Sequence[str] | None = None,
        order_by: str | None = None,
        on_missing: OnMissing | None = None,
        unique: str | Sequence[str] | None = None,
        within: int | str | None = None,
        false_positives: float = 0.01,
    ) -> Self:
        """Declare a collection that comes from outside: ``hf.files(…)``, ``hf.table(df)``, ``hf.rate(…)``, or your own
        `Source`.

        ``expires`` says, in SQL, when a row expires: ``"ts + INTERVAL 1 DAY"``. From that moment on no view sees the
        row, and no view keeps state for it. A row for which it is NULL stays; a row that comes after it has expired is
        never seen.

        ``key`` names the columns by which rows replace each other: a row replaces the row of its key, and a deletion
        removes it. The column ``order_by`` says which of two rows is later, whatever the order in which they arrive (of
        equal ones the greater row counts); without it the order of arrival does: epoch, file, line. The deletion of a
        key that is not there fails the epoch, or is ignored (``on_missing="ignore"``). With ``order_by``, deleted keys
        are remembered, since an older version of a row may still come.

        ``unique`` names the column (or columns) of a record's id: a record that the source delivers again, in any
        epoch, counts once. ``within`` says how long an id is remembered: a number of epochs, or a time such as
        ``"1h"``, rounded up to an eighth of it; by default for ever. A record without an id (NULL) always counts.
        ``false_positives`` is the share of new ids for which the catalog of ids is searched in vain: a smaller share
        costs memory. See docs/delivery.md for deletions.

        From any thread; waits for the running epoch.
        """
        ids = parse_unique(f"source '{name}'", unique, within, false_positives, expires, key)
        if not isinstance(source, Source):
            raise DeclarationError(
                f"source '{name}': expected a Source such as hf.files(…), found {source!r}", source=name
            )
        subject = f"source '{name}'"
        if expires is not None:
            arguments.text(subject, "expires", expires, "SQL")
        if isinstance(source, InferredFiles):
            source = source.resolved(self._session(), self._recorded_fields(name))
        if source.versions is not None and (expires is not None or ids is not None):
            raise DeclarationError(
                f"{subject}: expires and unique cannot be had together with hf.replaced or on_bad_rows='quarantine'"
            )
        if key is not None:
            _check_keyed(subject, expires)
            source = KeyedSource(subject, source, key, order_by, on_missing)
        elif order_by is not None or on_missing is not None:
            raise DeclarationError(f"{subject}: order_by and on_missing are for rows with a key; give key, too")
        with self._turns.taken("source()"):
            self._catalog.check_new(name, "source")
            self._add(name, source, expires, ids)
        return self

    def _recorded_fields(self, name: str) -> list[tuple[str, str]] | None:
        """The columns that a source had when the flow ran last, from its log; None if the log has none."""
        from holdfast.log.location import open_location
        from holdfast.runtime.description import recorded_fields

        locations = [open_location(place) for place in self._places]
        return recorded_fields(self._local or working_directory(locations, make=False), locations, name)

    @overload
    def input(
        self,
        name: str,
        schema: str,
        *,
        expires: str | None = None,
        unique: str | Sequence[str] | None = None,
        within: int | str | None = None,
        false_positives: float = 0.01,
    ) -> Input: ...

    @overload
    def input(
        self,
        name: str,
        schema: str,
        *,
        key: str | Sequence[str],
        order_by: str | None = None,
        on_missing: OnMissing | None = None,
    ) -> KeyedInput: ...

    def input(
        self,
        name: str,
        schema: str,
        *,
        expires: str | None = None,
        key: str | Sequence[str] | None = None,
        order_by: str | None = None,
        on_missing: OnMissing | None = None,
        unique: str | Sequence[str] | None = None,
        within: int | str | None = None,
        false_positives: float = 0.01,
    ) -> Input | KeyedInput:
        """Declare a collection that code changes, with ``insert``, ``delete`` and ``update``. ``expires``, ``unique``,
        ``within`` and ``false_positives``: as for `source`. Declaring the same input again returns the existing one.

        With ``key`` (a column, or several) the input has one row for each key: ``upsert`` sets rows, ``delete_keys``
        removes them. ``order_by`` and ``on_missing``: as for `source`.

        From any thread; waits for the running epoch. The methods of the `Input` wait for nothing."""
        subject = f"input '{name}'"
        arguments.text(subject, "schema", schema, "a Spark schema such as 'id long, name string'")
        if expires is not None:
            arguments.text(subject, "expires", expires, "SQL")
        ids = parse_unique(subject, unique, within, false_positives, expires, key)
        with self._turns.taken("input()"):
            fields = parse_schema(schema, subject=subject)
            pushed: Input | KeyedInput
            if key is None:
                if order_by is not None or on_missing is not None:
                    raise DeclarationError(f"{subject}: order_by and on_missing are for rows with a key; give key, too")
                pushed = Input(name, fields, () if ids is None else ids.columns)
            else:
                _check_keyed(subject, expires)
                found = versions(subject, fields, key, order_by)
                pushed = KeyedInput(name, found, missing(subject, on_missing, found.order, default="error"))
            known = self._catalog.sources.get(name) if isinstance(name, str) else None
            if (
                isinstance(known, Input | KeyedInput)
                and self._expires.get(name) == (expires, ids)
                and same_input(known, pushed)
            ):
                return known
            self._catalog.check_new(name, "input")
            self._add(name, pushed, expires, ids)
            self._expires[name] = (expires, ids)
        return pushed

    def _add(self, name: str, source: Source, expires: str | None, ids: UniqueIds | None) -> None:
        if ids is not None:
            catalog = self._catalog.with_unique(name, source, ids)
            self._check(name, catalog.expiring[name], "source")
            self._declared(catalog)
            return
        catalog = self._catalog.with_source(name, source, expires, None if expires is None else self._planner())
        if expires is not None:
            self._check(name, catalog.expiring[name], "source")
        self._declared(catalog)

    @overload
    def udf(self, name: str, function: Callable[..., Any], returns: str | None = None) -> Self: ...

    @overload
    def udf(self, name: str, *, returns: str) -> Callable[[Function], Function]: ...

    def udf(
        self, name: str, function: Callable[..., Any] | None = None, returns: str | None = None
    ) -> Self | Callable[[Function], Function]:
        """Let SQL call ``function`` by ``name``: ``SELECT id, geocode(city) AS place FROM orders``.

        A plain function is called for each row, with Python values. A function whose type hints are ``pandas.Series``
        or ``pyarrow.Array`` is called with columns and returns a column. Functions made by PySpark's ``udf``,
        ``pandas_udf`` and ``arrow_udf`` work as in Spark, and know their type; all others return the Spark type
        ``returns``. A function must be deterministic: when a row is deleted, its value is computed again. Mark any
        other function with ``hf.nondeterministic``: it is called once for each new row, and its answers are kept.

        Declaring a function again with another body, or other constants in it, computes the views that call it again.
        Without ``function``, this is a decorator: ``@flow.udf("double", returns="long")``.

        From any thread; waits for the running epoch.
        """
        if returns is not None:
            arguments.text(f"udf {name!r}", "returns", returns, "a Spark type such as 'string'")
        if function is None:

            def declare(function: Function) -> Function:
                self.udf(name, function, returns)
                return function

            return declare
        from holdfast.spark.declared_functions import user_function

        with self._turns.taken("udf()"):
            made = user_function(name, function, returns)
            planner = self._planner()
            planner.check_function(name)
            catalog = self._catalog.with_function(made, planner)
            if name.lower() in self._catalog.functions and _same_views(catalog, self._catalog):
                self._catalog = catalog
                return self
            self._declared(catalog)
        return self

    def view(self, name: str, query: str | DataFrame, *, max_rounds: int | None = None) -> Self:
        """Keep the result of ``query`` up to date: SQL over sources and earlier views, or a PySpark DataFrame made of
        `table` or `sql`.

        Spark analyses the query at once, in the given session, the active one, or a local one that is started for it;
        errors are raised here. Declaring a view again replaces it, and updates the views that read it; a query of the
        same meaning changes nothing.

        ``max_rounds``: the number of rounds after which a recursion (WITH RECURSIVE) must have ended; else the epoch
        raises `LoopDiverged`. By default the text decides (MAX RECURSION LEVEL), or 100 as in Spark.

        From any thread; waits for the running epoch.
        """
        subject = self._check_view_name(name)
        self._check_query(subject, "the query", query)
        if max_rounds is None:
            return self._with_view("view()", name, query)
        return self._with_view(
            "view()", name, Bounded(query, arguments.whole(subject, "max_rounds", max_rounds, 1, _MOST_ROUNDS))
        )

    def iterate(
        self,
        name: str,
        start: str | DataFrame,
        body: Callable[[DataFrame], DataFrame],
        until: int | Callable[[DataFrame, DataFrame], DataFrame] | None = None,
        *,
        max_rounds: int = 1000,
    ) -> Self:
        """Keep the result of an iteration up to date, as a view: it begins with ``start``, and ``body`` is applied
        again and again until nothing changes any more.

        ``start`` is SQL or a DataFrame of the flow. ``body`` takes a DataFrame with the rows of one round, and returns
        a DataFrame with the rows of the next round, with columns of the same types; it is called once, when the view is
        declared, and not in every round. ``until`` ends the iteration sooner. A number ends it after that many rounds.
        A function gets the rows before and after a round, and returns the rows that still change too much; the
        iteration ends at the first round in which it returns no rows (the result is the rows before that round). More
        than ``max_rounds`` rounds raise `LoopDiverged`, and the epoch does not take effect.

        From any thread; waits for the running epoch.
        """
        subject = self._check_view_name(name)
        self._check_query(subject, "the start", start)
        arguments.callable_with(subject, "the body", body, "one argument, a DataFrame", 1)
        if callable(until):
            arguments.callable_with(subject, "until", until, "two arguments, the rows before and after a round", 2)
        elif until is not None:
            until = arguments.whole(subject, "until", until, 0, _MOST_ROUNDS)
        bound = arguments.whole(subject, "max_rounds", max_rounds, 1, _MOST_ROUNDS)
        return self._with_view("iterate()", name, Iteration(start, body, until, bound))

    def _check_view_name(self, name: str) -> str:
        arguments.text("view", "the name", name)
        if name in self._catalog.sources:
            raise DeclarationError(f"view '{name}': there is a source of that name already", view=name)
        return f"view '{name}'"

    @staticmethod
    def _check_query(subject: str, what: str, query: object) -> None:
        from holdfast.spark.session import is_frame

        if not is_frame(query):
            arguments.text(subject, what, query, "SQL or a PySpark DataFrame")

    def _with_view(self, call: str, name: str, query: Query) -> Self:
        with self._turns.taken(call):
            catalog = self._catalog.with_view(name, query, self._planner())
            if _same_views(catalog, self._catalog):
                return self
            self._check(name, catalog.views[name])
            self._declared(catalog)
        return self

    def drop(self, view: str) -> Self:
        """Remove a view. Remove the views that read it, and its sinks, first.

        From any thread; waits for the running epoch."""
        arguments.text(f"flow '{self.name}'", "the view to drop", view, "its name")
        with self._turns.taken("drop()"):
            self._catalog.check_view(view)
            if any(target == view for target, _ in self._sinks):
                raise DeclarationError(
                    f"view '{view}': a sink still takes its changes; flow.unsink('{view}') first", view=view
                )
            self._declared(self._catalog.without_view(view))
        return self

    def sink(self, view: str, sink: Sink, *, retries: int | None = None, pause: float | None = None) -> Self:
        """Send the changes of ``view`` to a sink: ``hf.changelog(path)``, ``hf.foreach(function)``, or your own
        `Sink`. Declaring the same sink again changes nothing; a function with the same name and another body replaces
        the function before.

        A commit that raises is tried again ``retries`` times (by default 0), the first time after ``pause`` seconds (by
        default 1), and each further time after twice as long. If it still raises, so does the step; the epoch is
        complete all the same, and the sink gets it before the next epoch.

        From any thread; waits for the running epoch."""
        arguments.text(f"flow '{self.name}'", "the view of a sink", view, "its name")
        self._catalog.check_view(view)
        if not isinstance(sink, Sink):
            raise DeclarationError(
                f"sink of view '{view}': expected a Sink such as hf.changelog(…), found {sink!r}", view=view
            )
        if retries is not None:
            sink.retries = arguments.whole(f"sink of view '{view}'", "retries", retries, 0)
        if pause is not None:
            sink.retry_pause = arguments.number(f"sink of view '{view}'", "pause", pause)
        with self._turns.taken("sink()"):
            found = same_again(self._sinks, view, sink)
            if found is None:
                check_target(self._sinks, view, sink)
                self._check_outside(view, sink)
                self._keep_promise(view, sink)
                self._sinks.append((view, sink))
                self._declared(self._catalog)
            elif not found[1]:
                before = self._sinks[found[0]][1]
                self._sinks[found[0]] = (view, sink)
                self._declared(self._catalog)
                if self._told is not None and before in self._told.delivered:
                    self._told.delivered[sink] = self._told.delivered[before]
                if self._told is not None and self._told.sinks is not None:
                    self._told.sinks = tuple(
                        (each, sink if known is before else known) for each, known in self._told.sinks
                    )
        return self

    def _check_outside(self, view: str, sink: Sink) -> None:
        """Raise `DeclarationError` if a sink would write to the place of the flow's log."""
        place = sink.target()
        logs = [Path(log).expanduser().resolve() for log in (self._local, *self._places) if isinstance(log, str | Path)]
        if place is not None and Path(place).resolve() in logs:
            raise DeclarationError(
                f"sink of view '{view}': {place} is the log of the flow, which is Holdfast's own; give another place",
                view=view,
                path=place,
            )

    def unsink(self, view: str, sink: Sink | None = None) -> Self:
        """Stop sending the changes of ``view`` to ``sink``, or to all its sinks (None). Nothing is removed from the
        sinks.

        From any thread; waits for the running epoch."""
        arguments.text(f"flow '{self.name}'", "the view of a sink", view, "its name")
        if sink is not None and not isinstance(sink, Sink):
            arguments.refuse(f"flow '{self.name}'", "sink", "a sink of the view", sink)
        with self._turns.taken("unsink()"):
            kept = [one for one in self._sinks if one[0] != view or (sink is not None and one[1] is not sink)]
            if len(kept) == len(self._sinks):
                raise UnknownName(f"view '{view}': it has no such sink", name=view)
            self._sinks = kept
            self._declared(self._catalog)
        return self

    def _keep_promise(self, view: str, sink: Sink) -> None:
        """Check that the flow's guarantee holds with another sink. If the user chose no strategy, choose one first."""
        if self._guarantee is None:
            return
        kinds = [each.kind for _, each in self._sinks] + [sink.kind]
        if not self._strategy_chosen:
            self._settings = replace(self._settings, strategy=choose(self._guarantee, kinds))
        holds = SinkKind.TRANSACTIONAL in kinds[:-1]
        check_sink(f"sink of view '{view}'", self._guarantee, self._settings.strategy, sink.kind, (), holds)

    def on_membership(self, function: H) -> H:
        """Call ``function`` with every `Change` of the members, beginning with the initial set; use it as a decorator.
        Calls come once per change, in order, never two at once, in a thread of their own. If ``function`` raises, the
        flow stops with that error.

        From any thread; waits for the running epoch."""
        arguments.callable_with(f"flow '{self.name}'", "a membership handler", function, "one argument, the Change", 1)
        with self._turns.taken("on_membership()", looks=True):
            self._members.add(function)
        return function

    def table(self, name: str) -> DataFrame:
        """A source or view as a PySpark DataFrame. In the query of a `view` it stands for the collection. If you run it
        (``show``, ``count``, ``toPandas``), or a DataFrame that is made of it, it reads the collection as of the last
        epoch at that time, all parts as of the same epoch. Before the first epoch it has no rows. From any thread;
        running it waits for the running epoch, as `read` does."""
        arguments.text(f"flow '{self.name}'", "the table", name, "the name of a source or view")
        schemas = self._catalog.schemas
        if name not in schemas:
            raise UnknownName(f"table '{name}' not found{did_you_mean(name, schemas)}", name=name)
        return self._planner().table(name, schemas[name])

    def sql(self, text: str, *, at: int | None = None) -> DataFrame:
        """A query over sources and views as a PySpark DataFrame, which behaves like that of `table`. Names that the
        flow does not have are looked up in the Spark session. You can give the DataFrame to `view`, or its text.

        With ``at`` it always reads all of them as of that epoch; then it cannot be a view. From any thread."""
        arguments.text(f"flow '{self.name}'", "the query", text, "SQL")
        planner = self._planner()
        if at is not None:
            from holdfast.spark.planning import Planner

            tables = FlowTables(self, arguments.whole(f"flow '{self.name}', sql", "at", at, 0))
            planner = Planner(self._session(), self._meaning, tables.leaves(), tables.mark)
        return planner.sql(text, self._catalog.schemas, self._catalog.functions)

    def _session(self) -> SparkSession:
        """The session that was given, the active one, or a local one that is started now."""
        if self._spark is None:
            from holdfast.spark.session import start_session

            with doing(f"flow '{self.name}'", "starting Spark"):
                self._spark = start_session(self._detection_timeout)
        return self._spark

    def _check_session(self) -> None:
        if self._spark is not None and self._spark.sparkContext._jsc is None:
            raise TasksLost(
                f"flow '{self.name}': its Spark session was stopped. Close the flow and declare it again, and it goes "
                "on where it was; rows that were pushed since the last epoch are to be pushed again",
                flow=self.name,
                spark=False,
            )

    def _planner(self) -> Planner:
        """The planner, which analyses queries."""
        self._check_session()
        if self._planning is None:
            from holdfast.spark.planning import Planner

            self._own_session()
            self._planning = Planner(self._session(), self._meaning, self._live.leaves(), self._live.mark)
        return self._planning

    def _own_session(self) -> SparkSession:
        """The session that Holdfast uses for its own queries."""
        if self._reading is None:
            from holdfast.spark.session_meaning import meaning_of, planning_session

            spark = self._session()
            self._meaning = meaning_of(spark, self.name)
            self._reading = planning_session(spark, self._meaning)
        return self._reading

    def _check(self, name: str, plan: nodes.Node, kind: str = "view") -> None:
        from holdfast.spark.keepable import check_keepable

        check_keepable(name, plan, self._own_session(), kind)

    def _hold(self, spark: SparkSession, recorded: Mapping[str, str]) -> None:
        """Use the session settings with which the flow first ran, and warn if the session differs now."""
        from holdfast.spark.session_meaning import planning_session

        self._own_session()
        differing = {name: value for name, value in recorded.items() if self._meaning.get(name, value) != value}
        if differing:
            listed = ", ".join(f"{name}={value}, not {self._meaning[name]}" for name, value in differing.items())
            logger("holdfast.flow").warning(
                "flow '%s' goes on with what it was first run with: %s",
                self.name,
                listed,
                extra={"flow": self.name, "session": differing},
            )
            self._meaning |= differing
            self._reading = planning_session(spark, self._meaning)
            self._planning = None
            self._catalog = self._catalog.planned_anew(self._planner())

    def _declared(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ready = None
        self._renew()

    def _renew(self) -> None:
        """Close the engine, which runs the declarations before. An approximate engine is repaired first: its sources
        were told of epochs that are not in the log."""
        if self._engine is not None:
            self._engine.repair()
            self._end()
        if self._runner is not None:
            self._runner.close()

    def _end(self, reopens: bool = False) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        ahead = engine.approximate is not None
        try:
            engine.close(reopens)
        except BaseException:
            # An approximate engine could not be repaired: its sources are ahead of the log, so this flow is closed. A
            # new flow can go on with the log.
            self._closed = self._closed or ahead
            raise
        finally:
            self._recovery = engine.recovery.result()
            redeclaration.closed(self, engine.declared.local)

    # -- running --------------------------------------------------------------------------------------------------

    def step(self) -> Epoch:
        """Run one epoch with the input that waits now, and return what it did; ``idle`` if nothing waited.

        From any thread; epochs run one after the other: a second call waits for the first. Not from code that an epoch
        calls."""
        result = self._step()
        if result.idle and self._closed:
            raise DeclarationError(f"flow '{self.name}' is closed")
        return result

    def _step(self, patient: bool = False, continues: bool = False) -> Epoch:
        """Run one epoch; idle if the flow is closed while this waits for storage. ``patient``: sources that had nothing
        need not be polled again at once. ``continues``: another epoch follows at once."""
        with self._turns.taken("step()"):
            while True:
                self._follow_cores()
                engine = self._started()
                if self._accepts_clock:
                    engine.accept_clock()
                    self._accepts_clock = False
                watched = self._members.watched(partial(getattr, engine, "safe"))
                busy = doing(f"flow '{self.name}'", self._coming(engine.last + 1))
                try:
                    with watched, self._telling(engine), busy, self._told_beside().epoch() as tell:
                        result = engine.step(patient, continues)
                        tell(result)
                finally:  # an epoch may be complete although something failed after it
                    with self._completed:
                        self._completed.notify_all()
                self._tell_epoch(result)
                if not result.idle or self._closed or self._engine is engine:
                    return result
                # While this waited for storage, another thread declared something: run an epoch of that.

    def _coming(self, epoch: int) -> str:
        """The text that shows the running epoch to people: the first epoch reads all input there is."""
        count = len(self._catalog.views)
        return f"epoch {epoch}" if epoch else f"epoch 0: filling {count} view{'s' * (count != 1)}"

    def _follow_cores(self) -> None:
        """With ``partitions="auto"``: rescale to one partition per core, when the number of cores is stable. If members
        keep layers of their own, a thread first lets them fetch the layers that will move, while epochs go on."""
        engine, spark = self._engine, self._spark
        if self._follows_cores is None or engine is None or spark is None or engine.approximate is not None:
            return
        if self._moving is not None and self._moving.is_alive():
            return
        found = self._follows_cores.seen(spark.sparkContext.defaultParallelism, engine.partitions, time.monotonic())
        if found is None:
            return
        if engine.moves.between_members:
            self._moving = threading.Thread(
                target=self._follow_to, args=(found,), name=f"holdfast-rescale-{self.name}", daemon=True
            )
            self._moving.start()
        else:
            self._end(reopens=True)
            self._repartition(found)

    def _follow_to(self, partitions: int) -> None:
        """Rescale, in a thread of its own. A failure is logged, and tried again when the cores are looked at next."""
        try:
            self._rescale(partitions, follows=True)
        except Exception as error:
            if not self._closed:
                _RECOVERY.warning(
                    "flow '%s': it could not be rescaled to %s partitions: %s",
                    self.name,
                    partitions,
                    error,
                    extra={"flow": self.name, "partitions": partitions, "error": str(error)},
                )

    def rescale(self, partitions: int) -> Self:
        """Run stages with ``partitions`` tasks from the next epoch on. Between two epochs the flow closes its log and
        opens it again, as for a declaration. A partition is a slice of the existing layers, so on one host nothing is
        rewritten, copied or computed again. (Later merges write layers of the new partitions.) If members keep layers
        of their own, only layers whose owner changes move: first, while epochs go on, members fetch them from the log's
        locations; then, between two epochs, they get the rest (``flow.last_recovery`` counts them). Sinks, inputs,
        subscriptions and a run in the background go on.

        From any thread; waits for the running epoch. The next epoch waits for the change, but not for the layers that
        are fetched before. Not from code that an epoch calls."""
        partitions = arguments.whole(f"flow '{self.name}'", "partitions", partitions, 1, 256)
        self._turns.refuse_inside("rescale()")
        self._follows_cores = None  # a given number ends ``partitions="auto"``
        return self._rescale(partitions)

    def _rescale(self, partitions: int, follows: bool = False) -> Self:
        """Rescale. ``follows``: because the number of cores changed; given up if `rescale` is called meanwhile."""
        before, ahead = self._now_open(), 0
        try:
            if before is not None:
                ahead = self._bring_ahead(before, partitions)
            with self._turns.taken("rescale()"):
                self._check_open()
                if follows and self._follows_cores is None:
                    return self
                engine = self._engine
                if engine is not None and engine.partitions == partitions:
                    self._partitions = partitions
                    return self
                if engine is None:
                    self._partitions, self._ready = partitions, None
                    return self
                engine.repair()
                self._end(reopens=True)
                self._repartition(partitions)
                engine = self._started(moves=True)
        finally:
            if before is not None and self._engine is before:
                before.resume()
        # An epoch may run between the change and this count.
        with self._turns.taken("rescale()"):
            if self._engine is engine:
                engine.moves.moved(ahead)
        return self

    def _repartition(self, partitions: int) -> None:
        """Change the number of partitions of the prepared flow. Compiled and planned views and warm workers are kept,
        so no epoch waits for them."""
        self._partitions = partitions
        if self._ready is not None:
            self._ready = self._ready.over(self._cluster(partitions, self._ready.declared.locations))

    @staticmethod
    def _bring_ahead(engine: Engine, partitions: int) -> int:
        """While epochs go on, let members fetch the layers that they will own with the new number of partitions; then
        stop background work, and let them fetch again. Returns the number of fetched layers."""
        ahead = 0
        if engine.partitions == partitions or engine.approximate is not None:
            return 0
        for rests in (False, True):
            if rests:
                engine.rest()
            ahead += engine.moves.bring_ahead(engine.moves.owners_of(partitions))
        return ahead

    def rewind(self, to: int, *, reason: str = "", skip: Mapping[str, Sequence[Any]] | None = None) -> Epoch:
        """Undo all epochs after ``to``, after bad input or a bad deployment. One epoch is run that takes every view
        back to its rows as of ``to``; each sink is given the retractions, exactly once. The undone epochs stay readable
        (``flow.read(view, at=…)``) as long as the flow retains them.

        The next epochs take the undone input again, in its order, before sources are polled for more. ``skip`` leaves
        some of it out: source → the names of its files; input → rows:
        ``skip={"visits": ["2024-05-01.csv"], "orders": [(7, "eve", 1e9)]}``. ``reason`` is written into the log.

        Raises `EpochUnavailable`, which names the first epoch to which a rewind is possible, if ``to`` was compacted or
        later input was released.

        From any thread; waits for the running epoch. Not from code that an epoch calls."""
        subject = f"flow '{self.name}', rewind"
        to = arguments.whole(subject, "to", to, 0)
        if not isinstance(reason, str):
            arguments.refuse(subject, "reason", "a text", reason)
        if skip is not None and not (
            isinstance(skip, Mapping)
            and all(isinstance(name, str) and isinstance(what, list | tuple) for name, what in skip.items())
        ):
            arguments.refuse(subject, "skip", "lists of file names or rows by source, as {'visits': ['bad.csv']}", skip)
        with self._turns.taken("rewind()"):
            engine = self._started()
            try:
                with self._members.watched(lambda: engine.safe), self._telling(engine):
                    result = engine.rewind(to, reason, skip or {})
            finally:
                with self._completed:
                    self._completed.notify_all()
            self._tell_epoch(result)
        return result

    def drain(self, member: str) -> Recovery:
        """Let a member leave on purpose, for example before its host is taken down: the other members own its
        partitions from the next epoch on. ``flow.status().placement.members`` lists the members. First, while epochs go
        on, the other members fetch layers from the log's locations; then, between two epochs, the member hands over the
        rest. So nothing is computed again (the result says what was done), and afterwards you may stop the member. It
        gets no partition back as long as it is there.

        From any thread; other threads have their turns while layers are fetched. Not from code that an epoch calls."""
        arguments.text(f"flow '{self.name}', drain", "the member", member, "its name")
        self._turns.refuse_inside("drain()")
        engine, ahead = self._opened("drain()"), 0
        engine.moves.heirs(member)
        if engine.last >= 0 and engine.declared.settings.durable and engine.approximate is None:
            with suppress(StoreError):  # layers that no location has by then are handed over by the member itself
                self.wait_safe(timeout=_BEFORE_LEAVING)
            ahead = engine.moves.bring_ahead(engine.moves.heirs(member))
        with self._turns.taken("drain()"):
            engine = self._started()
            with self._members.watched(lambda: engine.safe), self._telling(engine):
                return engine.drain(member, ahead).result()

    def _decommissioned(self, member: str) -> None:
        """Spark decommissions a member: drain it, if the flow is open and the member keeps layers."""
        if (engine := self._now_open()) is not None and not self._closed and engine.moves.keeps_layers(member):
            self.drain(member)

    def accept_clock(self) -> Self:
        """Accept the host's clock for the next epoch as it is. Use it if the clock is right although it jumped
        (`ClockJumped`), or if the flow's clock is ahead because the host's was once (``status().clock.ahead``). In that
        case rows that expired too early do not come back by themselves; drop the view and declare it again to compute
        it from its sources. From any thread; waits for nothing."""
        self._accepts_clock = True
        return self

    def run(
        self,
        *,
        until: Until | None = None,
        epochs: int | None = None,
        interval: float = 0.1,
        on_epoch: Callable[[Epoch], None] | None = None,
        lease: str | Lease | None = None,
        lease_timeout: float | str | None = None,
        on_lease: Callable[[LeaseEvent], None] | None = None,
        min_members: int | None = None,
        timeout: float | None = None,
        accept_loss: bool = False,
    ) -> int:
        """Run epochs: until nothing waits (``until="idle"``), a number of ``epochs``, or until stopped (`stop`, or
        Ctrl-C). Returns the number of epochs that were run.

        When nothing waits it polls again every ``interval`` seconds. Ctrl-C ends it after the running epoch, and prints
        that; a second Ctrl-C ends it at once. ``on_epoch`` is called with each epoch. With ``min_members`` it first
        waits until that many executors are there, at most ``timeout`` seconds.

        If several drivers run the flow with the same ``lease`` (``"file:///shared/path"``, ``"zk://host:port/path"``),
        one of them leads; the others wait, ready to take over when it ends, dies, or does not renew the lease within
        ``lease_timeout`` (``"2s"``; by default 5 s). At the end the log is closed and the lease is released. Raises
        `Fenced` if another driver took over, `LeaseLost` if the lease was lost. ``on_lease`` is called with each event
        of the lease.

        With ``accept_loss`` it opens the flow although too few of the log's locations are there to be sure that nothing
        is lost (see `Flow`).

        From any thread. Other threads have their turns between epochs; concurrent runs share the epochs, and each
        counts those that it ran. Not from code that an epoch calls.
        """
        subject = f"flow '{self.name}'"
        if until is not None:
            arguments.one_of(subject, "until", until, ("idle",))
        if epochs is not None:
            epochs = arguments.whole(subject, "epochs", epochs, 0)
        interval = arguments.number(subject, "interval", interval)
        for what, function, of in (("on_epoch", on_epoch, "the Epoch"), ("on_lease", on_lease, "the LeaseEvent")):
            if function is not None:
                arguments.callable_with(subject, what, function, f"one argument, {of}", 1)
        if min_members is not None:
            min_members = arguments.whole(subject, "min_members", min_members, 0)
        if timeout is not None:
            timeout = arguments.number(subject, "timeout", timeout)
        if lease is not None and not isinstance(lease, Lease):
            arguments.text(subject, "lease", lease, "an address such as 'file:///shared/path', or a Lease")
        if lease is None and lease_timeout is not None:
            raise DeclarationError(f"flow '{self.name}': lease_timeout says when a lease is lost; give lease, too")
        self._turns.refuse_inside("run()")
        if arguments.flag(subject, "accept_loss", accept_loss):
            self._accept_loss()
        with self._running(), stopping(self.stop):
            if min_members is not None:
                with self._turns.taken("run()"):
                    self._prepared()
                self._members.wait(min_members, timeout)
            if lease is None:
                with self._turns.taken("run()"):
                    self._started()
                return self._loop(until, epochs, interval, on_epoch)
            from holdfast.standby.standing_by import leading

            with leading(self, lease, lease_timeout, on_lease) as leads:
                return self._loop(until, epochs, interval, on_epoch) if leads else 0

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Count a run while it works. The first of several concurrent runs resets an earlier `stop`."""
        with self._counting:
            if self._runs == 0:
                self._stopping = False
                if (engine := self._engine) is not None:
                    engine.stopping = False
            self._runs += 1
        try:
            yield
        finally:
            with self._counting:
                self._runs -= 1

    def _accept_loss(self) -> None:
        """Allow the log to be opened although epochs may be lost, if it is not open yet."""
        if not self._settings.accept_loss and self._engine is None:
            self._settings = replace(self._settings, accept_loss=True)
            self._ready = None

    def _loop(
        self, until: Until | None, epochs: int | None, interval: float, on_epoch: Callable[[Epoch], None] | None
    ) -> int:
        done = 0
        while not self._stopping and (epochs is None or done < epochs):
            began, beside = time.monotonic(), self._beside
            patient = until is None and not (beside is not None and beside.awaited)
            result = self._step(patient, continues=epochs is None or done + 1 < epochs)
            if result.idle and beside is not None:
                beside.idle(began)
            if not result.idle:
                done += 1
                if on_epoch is not None:
                    on_epoch(result)
            elif until == "idle":
                break
            else:
                time.sleep(interval)
        return done

    def start(self, *, interval: float = 0.1, on_epoch: Callable[[Epoch], None] | None = None) -> Self:
        """Run epochs in the background, in a separate thread, until `stop` or `close`. If an epoch fails, the run ends:
        the error is logged, and `await_idle` and `await_termination` raise it. Errors of opening the log are raised
        here.

        From any thread; waits for the running epoch. Not from code that an epoch calls."""
        subject = f"flow '{self.name}'"
        interval = arguments.number(subject, "interval", interval)
        if on_epoch is not None:
            arguments.callable_with(subject, "on_epoch", on_epoch, "one argument, the Epoch", 1)
        if self.active:
            raise DeclarationError(f"{subject}: it runs in the background already", flow=self.name)
        with self._turns.taken("start()"):
            self._started()
        self._beside = BackgroundRun(self.name, partial(self.run, interval=interval, on_epoch=on_epoch))
        return self

    @property
    def active(self) -> bool:
        """Whether the flow runs in the background (`start`). From any thread."""
        return self._beside is not None and self._beside.active

    def await_idle(self, timeout: float | None = None) -> bool:
        """Wait until the run in the background has taken all input that was there when this was called, and finds no
        more; returns False if that takes more than ``timeout`` seconds. If the run failed, raises its error.

        From any thread; not from code that an epoch calls."""
        beside = self._running_beside(timeout)
        found = beside.await_idle(timeout)
        if beside.error is not None:
            raise beside.error
        return found

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run in the background has ended, at most ``timeout`` seconds; returns whether it has. If the
        run failed, raises its error.

        From any thread; not from code that an epoch calls."""
        beside = self._running_beside(timeout)
        ended = beside.join(timeout)
        if beside.error is not None:
            raise beside.error
        return ended

    def _running_beside(self, timeout: float | None) -> BackgroundRun:
        if timeout is not None:
            arguments.number(f"flow '{self.name}'", "timeout", timeout)
        if self._beside is None:
            raise DeclarationError(
                f"flow '{self.name}': nothing runs in the background; flow.start() first, or flow.run(until='idle')",
                flow=self.name,
            )
        return self._beside

    def stop(self) -> None:
        """End `run`, also in the background (`start`), after the running epoch. From any thread, or a signal handler;
        waits for nothing."""
        self._stopping = True
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if (engine := self._engine) is not None:
            engine.stopping = True

    def open(self) -> Self:
        """Open the log now, as the first epoch would: claim it, find the history, recover what is missing
        (`last_recovery`). `status`, `explain` and `plan` do not open it.

        From any thread; waits for the running epoch. Not from code that an epoch calls."""
        with self._turns.taken("open()"):
            self._started()
        return self

    def prepare(self) -> Self:
        """Do all work that is possible without the log: start Spark, plan the views, and run an epoch without input
        until that is fast. Standby drivers call it; another driver may be running the flow.

        From any thread; waits for the running epoch."""
        with self._turns.taken("prepare()"):
            self._prepared().warm_up()
        return self

    def _started(self, moves: bool = False) -> Engine:
        """The open engine. The caller must have its turn. ``moves``: as in `Engine`."""
        self._check_session()
        if self._engine is None and self._standing_by:
            raise FlowBusy(
                f"flow '{self.name}': it stands by for its lease, and another driver may have its log; ask again when "
                "it leads (run's on_lease says when)",
                flow=self.name,
            )
        ready = self._prepared()
        if self._engine is not None and self._engine.torn:
            self._end()  # it was interrupted where only the log can tell whether the last epoch counts
        if self._engine is None:
            from holdfast.runtime.declaration import ConnectorProgress
            from holdfast.runtime.engine import Engine

            self._told = self._told or ConnectorProgress()
            if self._local is None:
                working_directory(ready.declared.locations)  # makes the directory
            if self._lease is None:
                redeclaration.opening(self, ready.declared.local, self._told)
            with doing(f"flow '{self.name}'", "opening the log"):
                engine = Engine(ready, self._told, self._lease, moves)
            engine.meanwhile = self._turns.aside
            engine.stopping = self._stopping and self._runs > 0
            self._engine = engine
            self._tell_recovery(engine.recovery.result())
            if self._lease is None:
                redeclaration.opened(self, ready.declared.local)
        return self._engine

    def _check_open(self) -> None:
        if self._closed:
            why = f": {self._closed_for}" if self._closed_for else ""
            raise DeclarationError(f"flow '{self.name}' is closed{why}", flow=self.name)

    def _prepared(self) -> PreparedFlow:
        self._check_open()
        if self._ready is None:
            self._renew()
            from holdfast.log.location import open_location
            from holdfast.runtime.declaration import Declaration
            from holdfast.runtime.description import recorded_session
            from holdfast.runtime.prepared_flow import PreparedFlow
            from holdfast.spark.decommissioning import DecommissionWatch

            spark = self._session()
            locations = tuple(open_location(place) for place in self._places)
            catalog = self._catalog
            declared = Declaration(
                name=self.name,
                local=self._local or working_directory(locations, make=False),
                locations=locations,
                sources=catalog.all_sources,
                views=dict(catalog.views),
                texts=self._texts(),
                sinks=tuple(self._sinks),
                settings=self._settings,
                on_loss=self._on_loss,
                max_clock_jump=self._max_clock_jump,
                branch=self._record,
            )
            partitions = self._partitions or partitions_for(spark.sparkContext.defaultParallelism)
            self._check_followable()
            self._hold(spark, recorded_session(declared.local, declared.locations))
            catalog, own = self._catalog, self._own_session()
            for name, node in catalog.views.items():
                self._check(name, node)
            for name, source in catalog.all_sources.items():
                self._check(name, nodes.Source(name, tuple(source.fields)), "source")
                source.in_session(own.conf.get("spark.sql.session.timeZone") or "UTC")
            declared = replace(
                declared,
                session=self._meaning,
                sources=catalog.all_sources,
                views=dict(catalog.views),
                expiring=dict(catalog.expiring),
                unique=catalog.unique,
            )
            cluster = self._cluster(partitions, locations)
            self._ready = PreparedFlow(declared, cluster)
            if self._leaving is None and cluster.scattered and DecommissionWatch.is_wanted(spark.sparkContext):
                self._leaving = DecommissionWatch(spark.sparkContext, lambda: self._placement, self._decommissioned)
            self._members.start(spark, lambda: -1 if (engine := self._engine) is None else engine.last)
        return self._ready

    def _cluster(self, partitions: int, locations: tuple[Location, ...]) -> SparkRunner:
        """A runner for epochs with this number of partitions; it replaces the runner before."""
        from holdfast.spark.runner import SparkRunner

        leaving = self._placement.ownership.leaving if self._placement is not None else ()
        heals = self._on_loss != "terminate"
        cluster = SparkRunner(self._session(), self._own_session(), partitions, heals, locations, leaving)
        if self._runner is not None:
            self._runner.close()
        self._runner, self._placement = cluster, cluster.placement
        return cluster

    def _check_followable(self) -> None:
        pushed = [name for name, source in self._catalog.all_sources.items() if not source.replayable]
        if self._settings.strategy.follows and pushed:
            raise DeclarationError(
                f"flow '{self.name}': with strategy {self._settings.strategy} a second driver reads the same "
                f"input, and rows that code pushes to input '{pushed[0]}' are in one process alone; read them from a "
                "source, or choose another strategy",
                flow=self.name,
                name=pushed[0],
            )

    def _texts(self) -> dict[str, str]:
        """View → its SQL, for messages."""
        return {name: query_text(query) for name, query in self._catalog.queries.items()}

    # -- logging --------------------------------------------------------------------------------------------------

    def _told_beside(self) -> Telemetry:
        """The object that reports to OpenTelemetry."""
        if self._telemetry is None:
            from holdfast.runtime.telemetry import Telemetry

            self._telemetry = Telemetry(self.name, self._status_if_open)
        return self._telemetry

    def _status_if_open(self) -> Status | None:
        return None if (engine := self._now_open()) is None else engine.status()

    def _tell_epoch(self, result: Epoch) -> None:
        if not result.idle:
            _EPOCHS.debug(
                "flow '%s': epoch %d: %d rows in, %.0f ms",
                self.name,
                result.epoch,
                result.rows_in,
                result.seconds * 1000,
                extra={
                    "flow": self.name,
                    "epoch": result.epoch,
                    "rows_in": result.rows_in,
                    "seconds": result.seconds,
                    "changed": result.changed,
                    "approximate": result.approximate is not None,
                },
            )

    @contextmanager
    def _telling(self, engine: Engine) -> Iterator[None]:
        """Log a recovery that is made inside this context, if there is one, also if it fails."""
        before, work = engine.recovery, engine.recovery.work
        try:
            yield
        finally:
            if engine.recovery is not before or engine.recovery.work != work:
                self._tell_recovery(engine.recovery.result())

    def _tell_recovery(self, recovery: Recovery) -> None:
        if recovery.work == Recovery().work and not recovery.repaired:
            return
        _RECOVERY.info(
            "flow '%s': recovered up to epoch %d: %d layers fetched, %d handed over, %d epochs computed again",
            self.name,
            recovery.epoch,
            recovery.layers_fetched,
            recovery.layers_handed,
            recovery.epochs_replayed,
            extra={"flow": self.name, **recovery.to_dict()},
        )

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, view: str, at: int | None = None) -> DataFrame:
        """The rows of a view as a Spark DataFrame: now, or as of epoch ``at``. A view with ORDER BY … LIMIT comes in
        that order. While the flow is `approximate` only rows of the remaining partitions are there, at every epoch.

        From any thread, and from code that an epoch calls; waits for the running epoch."""
        self._check_view(view)
        if at is not None:
            at = arguments.epoch(f"view '{view}'", "at", at)
        from holdfast.spark.read import read_frame

        with self._turns.taken("read()", looks=True):
            engine = self._looking(view)
            kept, epoch = engine.views.readable(view, at, recorded=at is not None)
            assert self._spark is not None  # an engine runs
            order = engine.views.order(view)
            return read_frame(self._spark, kept, epoch, engine.partitions, order, self._placement, engine.lost)

    def _check_view(self, view: str) -> None:
        arguments.text(f"flow '{self.name}'", "the view", view, "its name")
        self._catalog.check_view(view)

    def _looking(self, view: str | None = None) -> Engine:
        """The engine, for a call that may come from inside an epoch, but not while the flow is being opened. Checks
        ``view`` again, since another thread may have dropped it while this one waited for its turn."""
        if view is not None:
            self._check_view(view)
        if self._engine is None and self._turns.inside_another:
            raise FlowBusy(f"flow '{self.name}': it cannot be read before it is open", flow=self.name)
        return self._started()

    def lookup(self, view: str, keys: Any = None, /, *, at: int | None = None, scan: bool = False, **key: Any) -> Found:
        """The rows of a key, ``flow.lookup("spend", user="ada")``, or of many keys: a list of values (for a key of one
        column), of tuples in the order of the key's columns, or of dicts; or a table. Now, or as of epoch ``at``. Rows
        are found by binary search in the sorted layers, without a Spark job.

        The key of a view is the key of its plan: the columns that it groups, joins or ranks by, if they are in its
        result; else the whole row. Further columns filter the rows that are found. `ScanNeeded` names the key if some
        of its columns are not given; ``scan=True`` then reads the whole view. Give a column that is called ``at`` or
        ``scan`` in a dict. If layers are on other hosts, or while the flow is `approximate`, a task reads them there.

        From any thread, and from code that an epoch calls. It does not wait for epochs: it reads the last complete
        epoch, the same for all keys (``.epoch``). A flow that is not open is opened."""
        self._check_view(view)
        subject = f"view '{view}', lookup"
        if at is not None:
            at = arguments.epoch(subject, "at", at)
        arguments.flag(subject, "scan", scan)
        node = self._catalog.views[view]
        asked = question(view, node.fields, node.arrangement, keys, key, scan)
        if (engine := self._now_open()) is not None and engine.live.reads_layers:
            # Damaged layers are repaired below, when this call has its turn.
            with suppress(LogDamaged, LogUnreadable):
                if self._catalog.views.get(view) is node:
                    return engine.live.lookup(view, asked, at, recorded=at is not None)
        with self._turns.taken("lookup()", looks=True):
            engine = self._looking(view)
            if (now := self._catalog.views[view]) is not node:  # the view was declared again while this call waited
                asked = question(view, now.fields, now.arrangement, keys, key, scan)
            return engine.views.lookup(view, asked, at, recorded=at is not None)

    def changes(self, view: str, since: int = -1) -> DataFrame:
        """The changes of a view after epoch ``since``: the view's columns with ``_epoch`` and ``_diff``. The rows as of
        ``since`` plus these changes are the rows now. If the view was edited since, the difference is among the changes
        of the epoch after the edit. Raises `EpochUnavailable`, which names the first epoch with changes, if older ones
        are gone.

        From any thread, and from code that an epoch calls; waits for the running epoch."""
        self._check_view(view)
        since = arguments.whole(f"view '{view}'", "since", since)
        from holdfast.spark.read import changes_frame

        with self._turns.taken("changes()", looks=True):
            engine = self._looking(view)
            found = engine.views.changes(view, since)
            assert self._spark is not None  # an engine runs
            return changes_frame(
                self._spark, found, engine.views.fields(view), engine.partitions, self._placement, engine.lost
            )

    def subscribe(self, view: str, since: int | None = None, *, timeout: float | None = None) -> Subscription:
        """The changes of a view as epochs complete: ``for change in flow.subscribe("spend")`` yields one item
        (``change.epoch``, ``change.rows``, ``change.table``) for each epoch that changed the view, after epoch
        ``since`` (by default the last; -1: from the first on, with compacted epochs as one change). It ends when the
        flow is closed, or when nothing has come for ``timeout`` seconds. ``subscription.epoch`` is its position: give
        it as ``since=`` to go on there, also after a restart. Raises `EpochUnavailable` if changes were compacted (then
        read the view again), `UnknownName` if the view was dropped. While the flow is `approximate` it yields nothing.

        From any thread, and used by one thread at a time; epochs do not wait for it. Not from code that an epoch
        calls."""
        self._check_view(view)
        subject = f"view '{view}', subscribe"
        if since is not None:
            since = arguments.whole(subject, "since", since, -1)
        if timeout is not None:
            timeout = arguments.number(subject, "timeout", timeout)
        start = check_since(view, since, self._opened("subscribe()").last)

        def pull(after: int) -> tuple[pa.Table, int] | None:
            self._check_view(view)
            if (engine := self._now_open()) is not None and engine.live.reads_layers:
                upto = batch_end(after, engine.live.last)
                if upto <= after:
                    return None
                with suppress(LogDamaged, LogUnreadable):
                    if (found := engine.live.changes(view, after, upto)) is not None:
                        return found, upto
            if self._closed:
                return None
            with self._turns.taken("subscribe()"):
                if self._closed:
                    return None
                engine = self._looking(view)
                if engine.approximate is not None or engine.last <= after:
                    return None  # as for sinks, approximate epochs are given only when they are exact
                return engine.views.changes_table(view, after), engine.last

        def wait(_: int, most: float) -> None:
            with self._completed:
                self._completed.wait(most)

        def release() -> None:
            with self._completed:
                self._completed.notify_all()

        return Subscription(view, start, pull, lambda: self._closed, wait, release, timeout)

    def explain(self, view: str | None = None) -> str:
        """The dataflow of a view (by default of all views) as text: what its operators keep and did in the last epochs,
        and what a crash can do to the view and to each of its sinks: precise, gap, rollback-repeating,
        rollback-convergent or rollback-divergent, and why (`Strategy`, `predict`).

        From any thread, also in the middle of an epoch."""
        if view is not None:
            self._check_view(view)
        from holdfast.plan.explain import as_text

        whole = self.drawing()
        return "\n\n".join(as_text(whole, each) for each in ([view] if view is not None else self._catalog.views))

    def _now_open(self) -> Engine | None:
        """The engine if it is open and up to date with the declarations, for calls that do not wait for epochs; else
        None."""
        return self._engine if self._ready is not None else None

    def drawing(self) -> Drawing:
        """The dataflow of all views, which `explain` shows, as plain values. From any thread, also in the middle of an
        epoch."""
        if (engine := self._now_open()) is not None:
            return engine.drawing()
        from holdfast.inspect.unopened_flow import traces_directory
        from holdfast.runtime.statistics import Statistics, local_state

        ready = self._planned("drawing()")
        state = ready.state
        directory = traces_directory(self._log(), ready.declared.local)
        measured = Statistics().measured(state.traces, local_state(directory, state.layouts, rows=True))
        return state.drawn(measured)

    def plan(self) -> FlowPlan:
        """What running the flow as it is declared now would do to its log: which views it would add, rebuild (and what
        it would read again for that) and drop. Nothing is opened, claimed or written; another driver may be running it.

        From any thread, also in the middle of an epoch."""
        from holdfast.inspect.flow_plan import foresee

        return foresee(self._planned("plan()").state, self._log())

    def _planned(self, what: str) -> PreparedFlow:
        if (ready := self._ready) is not None:
            return ready
        with self._turns.taken(what, looks=True):
            return self._prepared()

    def _log(self) -> UnopenedLog:
        """The log of the flow, looked at from outside."""
        from holdfast.inspect.unopened_flow import look_at
        from holdfast.log.location import open_location

        locations = [open_location(place) for place in self._places]
        return look_at(self.name, locations, self._local or working_directory(locations, make=False))

    def status(self) -> Status:
        """The status of the flow: epochs, latency, waiting input, kept state, and how safe it is. For a flow that is
        not open in this process (`open`, the first epoch and the first read open it), the status of its log, which is
        not opened.

        From any thread, also in the middle of an epoch, and while an epoch waits for storage."""
        if (engine := self._now_open()) is not None:
            return engine.status()
        from holdfast.inspect.unopened_flow import status_unopened
        from holdfast.log.location import open_location

        locations = [open_location(place) for place in self._places]
        return status_unopened(
            self.name,
            self._log(),
            self._local or working_directory(locations, make=False),
            locations,
            self._settings,
            self._texts(),
            self._catalog.all_sources,
            self._sinks,
            self._partitions or 0,
        )

    def wait_safe(self, epoch: int | None = None, timeout: float | None = None) -> int:
        """Wait until ``epoch`` (by default the last) is safe: ``min_replicas`` locations have all of it. Returns the
        last safe epoch. Raises `StoreError` with the reason if that takes more than ``timeout`` seconds.

        From any thread; epochs go on meanwhile."""
        if epoch is not None:
            epoch = arguments.whole(f"flow '{self.name}'", "epoch", epoch)
        if timeout is not None:
            timeout = arguments.number(f"flow '{self.name}'", "timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if (engine := self._now_open()) is None:
                with self._turns.taken("wait_safe()", looks=True):
                    engine = self._looking()
            epoch = engine.last if epoch is None else epoch
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            safe = engine.wait_safe(epoch, left, lambda: self._turns.is_free)
            if safe >= epoch:
                return safe
            if engine.is_hindered and self._turns.is_free:
                with self._turns.taken("wait_safe()"), self._telling(engine):
                    engine.unhinder()
            # Otherwise another thread declared something: the flow is opened again, and goes on copying.

    def snapshot(self, name: str) -> Snapshot:
        """Give the last complete epoch a name. It is a consistent cut of all views, state and lineage; the flow can be
        read as of it, and copied to another place (`hf.copy_snapshot`), until `remove_snapshot`. It costs a small file
        in each log location, and the space of layers that compaction must keep. Raises `StoreError` if too few
        locations could write it.

        From any thread; epochs go on meanwhile, and it does not wait for them."""
        arguments.text(f"flow '{self.name}'", "the snapshot", name, "its name")
        return self._opened("snapshot()").snapshots.take(name)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots, in order of their epochs. From any thread, also in the middle of an epoch."""
        return self._opened("snapshots()").snapshots.listed()

    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot: its epoch may be compacted like any other. From any thread, also in the middle of an
        epoch."""
        arguments.text(f"flow '{self.name}'", "the snapshot", name, "its name")
        self._opened("remove_snapshot()").snapshots.remove(name)

    def branch(self, name: str, at: int | datetime | None = None) -> Branch:
        """Make a branch: a separate flow that begins with the state of this flow as of ``at`` (an epoch, a time, or
        None for now), with the sources, functions and views that are declared here now, and without sinks. It shares
        the layers of this flow: nothing is copied. You may change views on the branch; `Branch.replay` runs the epochs
        on it that this flow has run since. The branch, and the input since its root, are kept until `remove_branch`. If
        there is a branch of that name, it is returned.

        Raises `EpochUnavailable`, which names the first possible epoch, if the views as of ``at`` are gone. A flow that
        goes on without lost members is repaired first.

        From any thread; waits for the running epoch, and until ``at`` is safe. Not from code that an epoch calls."""
        arguments.text(f"flow '{self.name}'", "the branch", name, "its name")
        if isinstance(at, str | bytes):
            arguments.refuse(f"branch '{name}'", "at", "an epoch, a datetime, or None for now", at)
        if at is not None and not isinstance(at, datetime):
            at = arguments.whole(f"branch '{name}'", "at", at, 0)
        from holdfast.branch import Branch

        with self._turns.taken("branch()"):
            record = self._started().make_branch(name, at)
            found = self._branches.get(name)
            if found is None or found._closed:
                found = self._branches[name] = Branch(self, record)
            return found

    def branches(self) -> tuple[BranchInfo, ...]:
        """All branches, in order of their roots, with the space that each takes; among them the one that the flow uses
        while members are lost (``on_loss="continue"``). From any thread, also in the middle of an epoch."""
        return self._opened("branches()").branches.listed()

    def remove_branch(self, name: str) -> None:
        """Remove a branch, all files that only it has, and the branches of it; their handles are closed. Layers and
        input that were kept only for it may be removed from then on. Raises `LogBusy` while another process runs one of
        them. From any thread; waits for the running epoch. Not from code that an epoch calls."""
        arguments.text(f"flow '{self.name}'", "the branch", name, "its name")
        with self._turns.taken("remove_branch()"):
            engine = self._started()
            found = self._branches.get(name)
            closed = [] if found is None else list(found._with_branches())
            for each in closed:
                each.close()
            engine.remove_branch(name)
            for each in closed:
                each._closed_for = "the branch was removed"

    def rewinds(self) -> tuple[RewindInfo, ...]:
        """The rewinds of the flow, as far back as it retains epochs, oldest first. From any thread."""
        history = self._opened("rewinds()").history
        return tuple(RewindInfo.of(record) for record in history if record.rewind is not None)

    def _opened(self, what: str) -> Engine:
        """The engine, opened for this call if it is not open."""
        if (engine := self._now_open()) is not None:
            return engine
        with self._turns.taken(what, looks=True):
            return self._looking()

    @property
    def approximate(self) -> Approximation | None:
        """What is approximate since state was lost (``on_loss="continue"``): which partitions are left, of how many;
        None if everything is exact. From any thread."""
        return None if (engine := self._engine) is None else engine.approximate

    def repair(self) -> Recovery | None:
        """Make the flow exact again after it was `approximate`: bring back lost state from copies, compute again what
        no copy has, and run the epochs since the loss again; only then sinks get them. Returns what was done; None if
        there was nothing to do. If it fails, finished work is kept, and the next call does the rest. `close` and
        declarations also repair.

        From any thread; waits for the running epoch, and epochs wait for it. Not from code that an epoch calls."""
        with self._turns.taken("repair()"):
            engine = self._started()
            with self._members.watched(lambda: engine.safe), self._telling(engine):
                done = engine.repair()
        return None if done is None else done.result()

    @property
    def last_recovery(self) -> Recovery | None:
        """The work that was done when the flow was opened, or when it last repaired damage; None before it was opened.
        From any thread."""
        return self._recovery if (engine := self._engine) is None else engine.recovery.result()

    def close(self) -> None:
        """Stop running, repair approximate epochs, make all epochs safe, and release the log. Nothing is removed. A
        Spark session that the flow started is not stopped.

        From any thread: `run` ends after the running epoch. Not from code that an epoch calls. A second call does no
        harm."""
        if not self._turns.inside:
            self.stop()  # a call that waits for storage gives up its turn, and runs end
        try:
            with self._turns.taken("close()"):
                self._ready = None
                if self._engine is not None:
                    self._engine.stopping = False  # approximate epochs are repaired now, however long that takes
                try:
                    self._end()
                finally:
                    self._closed = True
                    if self._runner is not None:
                        self._runner.close()
                    with self._completed:
                        self._completed.notify_all()
                    if self._telemetry is not None:
                        self._telemetry.close()
                    for source in self._catalog.sources.values():
                        if isinstance(source, PushedRows):
                            source.close(f"flow '{self.name}' is closed")
        finally:
            # After our turn: a membership handler that is waited for here may be waiting for its own turn.
            if not self._turns.inside:
                self._members.close()
                if self._leaving is not None:
                    self._leaving.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """HTML for notebooks: the flow, and a picture of its dataflow."""
        from html import escape

        from holdfast.plan.picture import as_svg

        said = f"<p><code>{escape(repr(self))}</code></p>"
        try:
            if not self._catalog.views or self._closed:
                return said
            picture = as_svg(self.drawing()).replace(
                "<svg ", '<svg style="max-width: 100%; min-width: 60em; height: auto" ', 1
            )
            return f'{said}<div style="overflow-x: auto">{picture}</div>'
        except HoldfastError:
            return said

    def __repr__(self) -> str:
        places = ", ".join(map(shown, self._places))
        sources, views = (first_names(list(map(repr, each))) for each in (self._catalog.sources, self._catalog.views))
        return f"Flow({self.name!r}, log={places}, sources=[{sources}], views=[{views}])"


def _check_keyed(subject: str, expires: str | None) -> None:
    if expires is not None:
        raise DeclarationError(
            f"{subject}: key and expires cannot be had together: a row that has expired would still be the latest of "
            "its key; say it in a view instead: WHERE ts > now() - INTERVAL 1 DAY"
        )


def _same_views(one: Catalog, other: Catalog) -> bool:
    """Whether all views of two catalogs have the same names, columns and meaning."""
    if one.views.keys() != other.views.keys():
        return False
    pairs = [(node, other.views[name]) for name, node in one.views.items()]
    return all(
        node is known
        or (
            node.columns == known.columns
            and fingerprint(node) == fingerprint(known)
            and loop_bounds(node) == loop_bounds(known)
        )
        for node, known in pairs
    )
