"""The compiled dataflow of a flow, and the traces of its operators: what the flow keeps, and in which directories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.connectors.versions import Snapshots, Versions
from holdfast.coordinator.view_versions import ViewVersion
from holdfast.errors import UnknownName
from holdfast.guarantees.explanation import Outlet, explained
from holdfast.operators.linear_step import is_native
from holdfast.operators.log import LogSpec
from holdfast.plan import nodes
from holdfast.plan.dataflow import Dataflow, Given, build
from holdfast.plan.drawing import Drawing, Measured, drawing
from holdfast.plan.types import arrow_type
from holdfast.results.flow_results import TraceStatus
from holdfast.runtime.declaration import Declaration
from holdfast.task.program import Compiled, Program, compile_program
from holdfast.task.view_log import ViewLog
from holdfast.trace.cover import Chain
from holdfast.trace.rows import Layout

STATE_HISTORY = 8
"""The number of epochs that the state of an operator reaches back; views reach back as far as the retention says."""


class CompiledFlow:
    """The operators of a flow and their traces, by name. It reads nothing but listings."""

    def __init__(self, declared: Declaration, directory: Path) -> None:
        """``directory`` holds the local traces."""
        self.declared = declared
        self.directory = directory
        # The log keeps rows without the expired ones: a reader of the log must not see those.
        kept = {
            name: _kept_of(declared.expiring.get(name, nodes.Source(name, source.fields)))
            for name, source in declared.sources.items()
            # Records that count once by their id cannot be told from the input alone: only the log says which counted.
            if (source.retracts and not source.trusted)
            or not source.replayable
            or isinstance(source.versions, Versions | Snapshots)
            or name in declared.unique
            or source.keeps_rows
        }
        self._kept = kept
        self.flow = build(declared.views, kept, is_native)
        self.program = compile_program(self.flow)
        self.layouts: dict[str, Layout] = {}
        """Trace → its layout."""

        self.traces: dict[str, list[str]] = {}
        """Operator → its traces."""

        self.only_written = frozenset(
            f"{operator.id}.{suffix}"
            for operator in self.program.operators
            if not operator.spec.reads_traces
            for suffix in operator.spec.layouts()
        )
        """The traces that epochs write and do not read."""

        for operator in self.program.operators:
            for trace, layout in operator.traces:
                self.layouts[trace] = layout
                self.traces.setdefault(operator.id, []).append(trace)
        self.trace_names = tuple(self.layouts)

    def reaches(self) -> dict[str, int | None]:
        """Return, for each trace, how many epochs it reaches back; None: as many as the flow retains. Traces of drawn
        values cannot be computed again, so they reach back as far as rows do."""
        retention = self.declared.settings.retention
        everything = retention.epochs is None and retention.seconds is None
        return {
            trace: None if everything or operator.spec.keeps_collection or operator.spec.remembers else STATE_HISTORY
            for operator in self.program.operators
            for trace in self.traces[operator.id]
        }

    def remembers(self, operator: str) -> bool:
        """Whether an operator keeps values that cannot be computed again from its input."""
        return self.operators[operator].spec.remembers

    @property
    def inputs(self) -> frozenset[str]:
        """The traces that hold the only copy of input: rows that code pushed."""
        only = [name for name in self._kept if not self.declared.sources[name].replayable]
        return frozenset(trace for name in only for trace in self.traces[self.flow.views[name]])

    def kept(self, name: str, chain: Chain) -> ViewLog:
        """Return the log of a view, or of a source whose rows are kept."""
        operator = self.operators[self._operator_of(name)]
        if not isinstance(operator.spec, LogSpec):
            return self.kept_as(name, self._version(operator.id), chain)  # its trace has the layout of a log
        return ViewLog(str(self.directory / f"{operator.id}.rows"), operator.spec, self.fields(name), chain)

    @cached_property
    def operators(self) -> dict[str, Compiled]:
        return {operator.id: operator for operator in self.program.operators}

    def reading(self, operators: Collection[str], logs: Collection[str]) -> tuple[Dataflow, Program]:
        """Return a dataflow, and its program, that computes some of the operators from the rows of ``logs`` where it
        can. In that dataflow each log that is read is a source of the same name."""
        wanted = {
            name: node
            for name, node in self.declared.views.items()
            if {self.flow.views[name], *self.flow.ancestors({self.flow.views[name]})} & set(operators)
        }
        given = [Given(log, self.flow.operators[log].node) for log in logs]
        kept = {name: source for name, source in self._kept.items() if self.flow.views[name] in operators}
        flow = build(wanted, kept, is_native, given)
        return flow, compile_program(flow)

    def versions(self) -> dict[str, ViewVersion]:
        """Return the version of each view, and of each source whose rows are kept."""
        return {name: self.version(name) for name in self.flow.views}

    def version(self, name: str) -> ViewVersion:
        """Return the version of a view, or of a source whose rows are kept."""
        names = tuple(field.name for field in self.fields(name))
        return replace(self._version(self._operator_of(name)), names=names)

    def _operator_of(self, name: str) -> str:
        """Return the id of the operator that keeps a view. Raise `UnknownName` if the view was dropped before this flow
        was compiled: a reader may still know the view from an earlier compilation."""
        if name not in self.flow.views:
            raise UnknownName(f"view '{name}' not found: it was dropped", name=name)
        return self.flow.views[name]

    def _version(self, operator_id: str) -> ViewVersion:
        operator = self.flow.operators[operator_id]
        return ViewVersion(operator_id, tuple(field.type for field in operator.fields), operator.keys[0])

    def kept_as(
        self, name: str, version: ViewVersion, chain: Chain, fields: tuple[nodes.Field, ...] | None = None
    ) -> ViewLog:
        """Return the log of a view in a present or former version; ``fields``: the columns, if they were others
        then."""
        spec = LogSpec(tuple(arrow_type(kind) for kind in version.types), version.key, False, name)
        return ViewLog(str(self.directory / version.trace), spec, fields or self.fields(name), chain)

    def fields(self, name: str) -> tuple[nodes.Field, ...]:
        """Return the fields: the user's names with Spark's types. (Two views of the same meaning share one log, and may
        name its columns differently.)"""
        kinds = self.flow.operators[self._operator_of(name)].fields
        names = self.declared.views[name].columns if name in self.declared.views else self._kept[name].columns
        return tuple(nodes.Field(each, kind.type) for each, kind in zip(names, kinds, strict=True))

    def traces_behind(self, name: str) -> list[str]:
        """Return the traces that a view depends on, including its own."""
        operator_id = self.flow.views[name]
        above = self.flow.ancestors({operator_id}) | {operator_id}
        return [trace for operator, traces in self.traces.items() if operator in above for trace in traces]

    @cached_property
    def drawing(self) -> frozenset[str]:
        """The operators that draw values, or ask outside, and all operators downstream of them: their values depend on
        the epoch in which they were drawn."""
        draws = {operator.id for operator in self.program.operators if operator.spec.remembers}
        if not draws:
            return frozenset()
        return frozenset(
            operator_id
            for operator_id in self.flow.operators
            if operator_id in draws or draws & self.flow.ancestors({operator_id})
        )

    def drawn(self, measured: Mapping[str, Measured] | None = None) -> Drawing:
        """Return the whole dataflow, with the state and measured work of each operator, and what a crash can do to each
        view."""
        declared = self.declared
        sinks = [Outlet(view, f"sink {type(sink).__name__}", sink.kind) for view, sink in declared.sinks]
        sources = {
            name: "retracting source" if source.replayable else "pushed source"
            for name, source in declared.sources.items()
            if source.retracts or not source.replayable
        }
        whole = drawing(self.flow, measured)
        return explained(whole, declared.views, declared.settings.strategy, sinks, sources)

    def description(self) -> dict[str, Any]:
        """Return the description of what the flow keeps (``collections.json``), for readers of its log."""
        none = Chain(-1, ())
        collections = {
            name: {
                "kind": "view" if name in self.declared.views else "source",
                "sql": self.declared.texts.get(name, ""),
                "fields": [[field.name, field.type] for field in self.fields(name)],
                "fingerprint": operator_id,
                "key": list(self.kept(name, none).spec.key),
            }
            for name, operator_id in self.flow.views.items()
        }
        operators = {operator_id: operator.kind for operator_id, operator in self.flow.operators.items()}
        found = {"collections": collections, "operators": operators, "dataflow": self.drawn().structure()}
        return {**found, "session": dict(self.declared.session)} if self.declared.session else found

    def sizes(self, held: Mapping[str, tuple[int, int, int]]) -> list[TraceStatus]:
        """Return the status of each trace; ``held``: trace → the number of its local layers, their bytes and rows."""
        return [
            TraceStatus(trace, operator.kind, *held.get(trace, (0, 0, 0))[:2])
            for operator in self.program.operators
            for trace in self.traces[operator.id]
        ]


def _kept_of(rows: nodes.Node) -> nodes.Node:
    """Return the node whose rows the log of a source keeps. If an operator keeps the source's rows, that is the
    operator itself, below the projection that hides some of its rows or columns."""
    below = rows.input if isinstance(rows, nodes.Linear) else rows
    return below if isinstance(below, nodes.KeyedNode) and below.parts[-1].keeps else rows


def log_layout(version: ViewVersion) -> Layout:
    """Return the layout of a log of that version."""
    spec = LogSpec(tuple(arrow_type(kind) for kind in version.types), version.key, False, "")
    return spec.arrangement.layout
