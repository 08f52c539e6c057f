"""What a flow keeps, and where: its dataflow, compiled, and the traces of its operators."""

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
"""So many epochs of an operator's state can be read as of; views reach back as far as the flow retains."""


class CompiledFlow:
    """The operators of a flow and their traces, by name. It reads nothing but listings."""

    def __init__(self, declared: Declaration, directory: Path) -> None:
        """``directory`` holds the local traces."""
        self.declared = declared
        self.directory = directory
        # Rows that have expired are not kept either: to what reads the log they are as good as never there.
        kept = {
            name: _kept_of(declared.expiring.get(name, nodes.Source(name, source.fields)))
            for name, source in declared.sources.items()
            # What counts once by its id is not a function of all that came: only the log can tell it again.
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

        for operator in self.program.operators:
            for suffix, layout in operator.spec.layouts().items():
                self.layouts[f"{operator.id}.{suffix}"] = layout
                self.traces.setdefault(operator.id, []).append(f"{operator.id}.{suffix}")

    def reaches(self) -> dict[str, int | None]:
        """All traces, with how many epochs of each can be read as of; None: as many as the flow retains. What was drawn
        cannot be computed again, so it reaches back as far as rows do."""
        retention = self.declared.settings.retention
        everything = retention.epochs is None and retention.seconds is None
        return {
            trace: None if everything or operator.spec.keeps_collection or operator.spec.remembers else STATE_HISTORY
            for operator in self.program.operators
            for trace in self.traces[operator.id]
        }

    def remembers(self, operator: str) -> bool:
        """Whether an operator keeps what cannot be computed again from its input."""
        return self._compiled[operator].spec.remembers

    @property
    def inputs(self) -> frozenset[str]:
        """The traces that hold input which is nowhere else: rows that code pushed."""
        only = [name for name in self._kept if not self.declared.sources[name].replayable]
        return frozenset(trace for name in only for trace in self.traces[self.flow.views[name]])

    def kept(self, name: str, chain: Chain) -> ViewLog:
        """The log of a view, or of a source whose rows are kept."""
        operator = self._compiled[self._operator_of(name)]
        if not isinstance(operator.spec, LogSpec):
            return self.kept_as(name, self._version(operator.id), chain)  # its rows lie as a log's do
        return ViewLog(str(self.directory / f"{operator.id}.rows"), operator.spec, self.fields(name), chain)

    @cached_property
    def _compiled(self) -> dict[str, Compiled]:
        return {operator.id: operator for operator in self.program.operators}

    def reading(self, operators: Collection[str], logs: Collection[str]) -> tuple[Dataflow, Program]:
        """A dataflow that computes some of the operators from the rows that ``logs`` hold, as far as those lead back:
        in it each log that is read is a source of that name. With its program."""
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
        """How each view, and each source whose rows are kept, is kept."""
        return {name: self.version(name) for name in self.flow.views}

    def version(self, name: str) -> ViewVersion:
        """How a view, or a source whose rows are kept, is kept."""
        names = tuple(field.name for field in self.fields(name))
        return replace(self._version(self._operator_of(name)), names=names)

    def _operator_of(self, name: str) -> str:
        """The operator that keeps a view. `UnknownName` of one that was dropped before this flow was compiled: its
        reader knew an earlier one."""
        if name not in self.flow.views:
            raise UnknownName(f"view '{name}' not found: it was dropped", name=name)
        return self.flow.views[name]

    def _version(self, operator_id: str) -> ViewVersion:
        operator = self.flow.operators[operator_id]
        return ViewVersion(operator_id, tuple(field.type for field in operator.fields), operator.keys[0])

    def kept_as(
        self, name: str, version: ViewVersion, chain: Chain, fields: tuple[nodes.Field, ...] | None = None
    ) -> ViewLog:
        """The log of a view in a version that it has, or had; ``fields``: if it had other columns then."""
        spec = LogSpec(tuple(arrow_type(kind) for kind in version.types), version.key, False, name)
        return ViewLog(str(self.directory / version.trace), spec, fields or self.fields(name), chain)

    def fields(self, name: str) -> tuple[nodes.Field, ...]:
        """The user's names with Spark's types. (Two views of the same meaning share their rows, under other names.)"""
        kinds = self.flow.operators[self._operator_of(name)].fields
        names = self.declared.views[name].columns if name in self.declared.views else self._kept[name].columns
        return tuple(nodes.Field(each, kind.type) for each, kind in zip(names, kinds, strict=True))

    def traces_behind(self, name: str) -> list[str]:
        """The traces that a view depends on, its own among them."""
        operator_id = self.flow.views[name]
        above = self.flow.ancestors({operator_id}) | {operator_id}
        return [trace for operator, traces in self.traces.items() if operator in above for trace in traces]

    @cached_property
    def drawing(self) -> frozenset[str]:
        """The operators whose values depend on the epoch at which they were drawn."""
        draws = {operator.id for operator in self.program.operators if operator.spec.remembers}
        if not draws:
            return frozenset()
        return frozenset(
            operator_id
            for operator_id in self.flow.operators
            if operator_id in draws or draws & self.flow.ancestors({operator_id})
        )

    def drawn(self, measured: Mapping[str, Measured] | None = None) -> Drawing:
        """The whole dataflow, with what each operator keeps and did, and what a crash can do to each view."""
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
        """What the flow keeps, for readers of its log."""
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
        """The local layers of each trace, of which ``held`` says how many there are, and their bytes."""
        return [
            TraceStatus(trace, operator.kind, *held.get(trace, (0, 0, 0))[:2])
            for operator in self.program.operators
            for trace in self.traces[operator.id]
        ]


def _kept_of(rows: nodes.Node) -> nodes.Node:
    """What is kept of a source for which ``rows`` stand: where an operator keeps them, also those that are hidden."""
    below = rows.input if isinstance(rows, nodes.Linear) else rows
    return below if isinstance(below, nodes.KeyedNode) and below.parts[-1].keeps else rows


def log_layout(version: ViewVersion) -> Layout:
    """The layout of a log of that version."""
    spec = LogSpec(tuple(arrow_type(kind) for kind in version.types), version.key, False, "")
    return spec.arrangement.layout
