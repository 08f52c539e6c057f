"""Planning of views: Spark analyses a query over the flow's names, and `frontend.catalyst` converts the analysed plan.

A query is read in a session (`statement_session.py`) in which each collection of the flow, a source or a view, is a
temporary view. The leaf of that view (`flow_leaves.py`) has an alias that the conversion recognises
(`convert.COLLECTION`). The query is analysed and never run: no command in it takes effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import (
    DeclarationError,
    SchemaError,
    SqlError,
    TypeMismatch,
    UnknownName,
    Unsupported,
)
from holdfast.frontend.build_nodes import columns, extend, linear
from holdfast.frontend.catalog import Planned
from holdfast.frontend.catalyst.convert import COLLECTION, convert
from holdfast.frontend.catalyst.draws import Draws
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator
from holdfast.frontend.column_names import unique
from holdfast.frontend.loop_queries import Bounded, Iteration, Query, RecursionLimits, query_text
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.temporal import Temporal
from holdfast.plan.expression import cast, quoted
from holdfast.plan.nodes import Field, Linear, Node, Source, UserFunction
from holdfast.plan.types import arrow_type
from holdfast.spark.analysed_query import Analysed
from holdfast.spark.flow_leaves import FlowLeaves
from holdfast.spark.jvm import CATALYST, jvm_class
from holdfast.spark.loop_planning import Part, RecursiveQuery, iterated, needs_loops
from holdfast.spark.query_refusals import explained, placed, start_of
from holdfast.spark.recursive_statements import RecursiveStatement, recursive_statement
from holdfast.spark.replanned_frames import renewed
from holdfast.spark.session_meaning import differing
from holdfast.spark.statement_session import StatementSession
from holdfast.spark.statements import analysis

Schema = Sequence[Field]
_VARIABLE = "loop variable "
"""The prefix of the name of a leaf that stands for a loop's variable."""

_LEVEL_LIMIT = "spark.sql.cteRecursionLevelLimit"
_ROW_LIMIT = "spark.sql.cteRecursionRowLimit"
_NO_LIMIT = 2**31 - 1
_MOMENTS = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class _Reading:
    """The context in which a query is read: its view, the beginning of error messages, the names that it may use."""

    view: str
    subject: str
    schemas: Mapping[str, Schema]
    functions: Mapping[str, UserFunction]
    draws: Draws


class Planner:
    """Plans the views of a flow."""

    def __init__(self, session: SparkSession, meaning: Mapping[str, str], leaves: FlowLeaves, mark: str) -> None:
        """``session``: the user's. ``meaning``: the settings that decide what SQL means, which override that session's.
        ``mark``: marks the flow's own collections in DataFrames."""
        self.session, self._leaves, self._mark = session, leaves, f"{mark}:"
        self._meaning = meaning
        self._names = StatementSession(session, meaning, leaves, COLLECTION + self._mark)

    def plan(
        self,
        view: str,
        query: Query,
        collections: Mapping[str, Node],
        schemas: Mapping[str, Schema],
        functions: Mapping[str, UserFunction],
    ) -> Planned:
        """Return the plan of a view over ``collections``, whose columns are ``schemas``. Raises `DeclarationError` if
        it is refused."""
        reading = _Reading(view, f"view '{view}'", schemas, functions, Draws())
        known = {self._mark + name: node for name, node in collections.items()}
        try:
            part = self._part(reading, query, known)
        except DeclarationError as error:
            raise placed(error, reading.subject, query_text(query)) from None
        except RecursionError:
            raise SqlError(f"view '{view}': the statement is nested too deeply", view=view) from None
        names = frozenset(name.removeprefix(self._mark) for name in part.reads)
        return Planned(part.node, names, part.fields, part.statics)

    def _part(self, reading: _Reading, query: Query, known: Mapping[str, Node], bound: int | None = None) -> Part:
        """Convert a query of any kind."""
        if isinstance(query, Bounded):
            return self._part(reading, query.query, known, query.max_rounds)
        if isinstance(query, Iteration):
            return self._iteration(reading, query, known)
        if isinstance(query, str):
            if (recursive := self._recursive(reading, query)) is not None:
                reading = replace(reading, draws=reading.draws.of_text())
                convert = partial(self._converted, reading, query, bound=bound)

                def over(plan: Any, further: Mapping[str, Node]) -> Part:
                    return convert(analysis(self.session, plan), {**known, **further})

                pieces = RecursiveQuery(
                    recursive, reading.subject, reading.view, over, self._variable, bound, self._limits()
                )
                try:
                    with explained(reading.subject, reading.view, query, reading.schemas, reading.functions):
                        return pieces.converted()
                except UnknownName as error:
                    if not pieces.is_inside or not str(error.fields["condition"]).startswith("UNRESOLVED_COLUMN"):
                        raise
                    advice = "a WITH RECURSIVE inside a query cannot refer to columns of the query around it"
                    raise UnknownName(f"{error}; {advice}", **error.fields) from None
            read = self._read(reading.subject, reading.view, query, reading.schemas, reading.functions)
            return self._converted(reading, query, read, known, bound)
        self._check_session(reading.subject, reading.view, query.sparkSession)
        read = analysis(self.session, query._jdf.queryExecution().analyzed())
        return self._converted(reading, "", read, known, bound)

    def _converted(
        self, reading: _Reading, text: str, read: Any, known: Mapping[str, Node], bound: int | None = None
    ) -> Part:
        """Convert Spark's analysis of a query. ``known``: what its leaves stand for."""
        with explained(reading.subject, reading.view, text, reading.schemas, reading.functions):
            analysed = Analysed(self.session, read, reading.subject, reading.functions)
        in_loop = any(isinstance(each, LoopLeaf) for each in known.values())
        statement = Statement(
            reading.view,
            analysed,
            reading.functions,
            reading.subject,
            bound,
            self._limits(),
            in_loop,
            reading.draws,
        )
        node, reads = convert(statement, analysed.plan, known)
        _check_types(statement, analysed)
        return Part(node, reads, analysed.fields, analysed.statics)

    def _recursive(self, reading: _Reading, text: str) -> RecursiveStatement | None:
        """Return the parsed statement, if it has a recursion that Spark does not analyse; else None."""
        if "recursive" not in text.lower():
            return None
        with explained(reading.subject, reading.view, text, reading.schemas, reading.functions):
            session = self._names.session(text, reading.schemas, reading.functions)
            statement = recursive_statement(self.session, text, session)
            if statement is None:
                return None
            ours = any(needs_loops(statement, each) for each in statement.clauses(statement.plan))
        return statement if ours else None

    def _limits(self) -> RecursionLimits:
        """How far a recursion may go, by the session's settings."""
        levels = int(self.session.conf.get(_LEVEL_LIMIT, str(RecursionLimits().levels)))
        # Spark's default suits a recursion that is computed once from scratch: only a limit that the user set counts.
        rows = int(self.session.conf.get(_ROW_LIMIT, "-1"))
        return RecursionLimits(levels if levels > 0 else _NO_LIMIT, rows if rows > 0 else None)

    def _variable(self, name: str, fields: Schema) -> tuple[str, Any]:
        """Make a leaf for a variable of a loop: its key for the conversion, and Spark's plan of it."""
        prefix = f"{self._mark}{_VARIABLE}"
        return prefix + name, self._leaves.plan(name, fields, COLLECTION + prefix)

    def _iteration(self, reading: _Reading, query: Iteration, known: Mapping[str, Node]) -> Part:
        reading = replace(reading, draws=Draws("seed"))
        start = self._part(replace(reading, subject=f"{reading.subject}, start"), query.start, known)
        key, plan = self._variable("iteration", start.fields)
        frame = renewed(self.session, plan, self._leaves)

        def converted(what: str, returned: DataFrame, further: Mapping[str, Node]) -> Part:
            if not isinstance(returned, DataFrame):
                raise DeclarationError(
                    f"{reading.subject}: {what} is a PySpark DataFrame, found {type(returned).__name__}",
                    view=reading.view,
                )
            return self._part(reading, returned, {**known, **further})

        return iterated(reading.view, query, start, converted, (key, frame))

    def expiring(self, source: Source, expires: str, functions: Mapping[str, UserFunction]) -> Node:
        """Plan the rows of ``source``, each until the moment that the SQL expression ``expires`` gives for it."""
        subject = f"source '{source.name}', expires"
        if not expires.strip():
            raise DeclarationError(f"{subject}: expected a SQL expression such as 'ts + INTERVAL 1 DAY'")
        until = unique("expires", source.columns)
        text = f"SELECT *, ({expires}\n) AS {quoted(until)} FROM {quoted(source.name)}"
        read = self._read(subject, source.name, text, {source.name: source.fields}, functions, place=False)
        analysed = Analysed(self.session, read, subject, functions)
        statement = Statement(source.name, analysed, functions, subject)
        rows, _ = convert(statement, analysed.plan, {self._mark + source.name: source})
        if not isinstance(rows, Linear) or rows.input != source or rows.predicate is not None:
            advice = "a row must say by itself when it goes"
            raise statement.unsupported("what is not computed from the row alone", None, advice)
        kind = rows.types[until]
        if kind not in _MOMENTS:
            message = f"{until} is a moment, expected a timestamp or a date, found {kind}"
            raise TypeMismatch(f"source '{source.name}': {message}", view=source.name)
        if kind != "timestamp":
            moment = unique(f"{until}:timestamp", rows.columns)
            rows, until = extend(rows, [(moment, cast(rows.column(until), "timestamp"))]), moment
        left = Temporal(rows, None, until)
        return linear(left, None, columns(left, source.columns))

    def table(self, name: str, fields: Schema) -> DataFrame:
        """Return a collection as a DataFrame of the user's session."""
        return renewed(self.session, self._names.plan(name, fields), self._leaves)

    def sql(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> DataFrame:
        """Return a query over collections as a DataFrame of the user's session."""
        return renewed(self.session, self._read("sql", "", text, schemas, functions).plan(), self._leaves)

    def check_function(self, name: str) -> None:
        """Raise if Spark has a function of that name, because SQL would call Spark's."""
        registry = jvm_class(self.session, f"{CATALYST}.analysis.FunctionRegistry")
        if registry.expressions().contains(name.lower()):
            raise DeclarationError(f"udf {name!r}: Spark has a function of that name; choose another", name=name)

    def _check_session(self, subject: str, view: str, session: SparkSession) -> None:
        """Raise if the session of a DataFrame gives SQL another meaning than the flow's views have. (A text is always
        read with the flow's meaning; a DataFrame was already analysed in its own session.)"""
        for name, value in differing(session, self._meaning).items():
            raise DeclarationError(
                f"{subject}: its DataFrame is of a session with {name}={value}; the views of this flow have the "
                f"meaning that SQL has with {name}={self._meaning[name]}: set it, and make the DataFrame again",
                view=view,
                setting=name,
                found=value,
                expected=self._meaning[name],
            )

    # -- analysing ------------------------------------------------------------------------------------------------

    def _read(
        self,
        subject: str,
        view: str,
        text: str,
        schemas: Mapping[str, Schema],
        functions: Mapping[str, UserFunction],
        place: bool = True,
    ) -> Any:
        """Return Spark's analysis of a text. ``place``: whether errors say the place in the text."""
        with explained(subject, view, text if place else "", schemas, functions):
            read = self._names.read(text, schemas, functions)
            command = read.command()
        if command:
            construct = _words(command)
            line, column = start_of(text)
            raise Unsupported(
                f"{subject}, line {line}, column {column}: {construct} is not supported: a view is a query, such as a "
                "SELECT",
                view=view,
                construct=construct,
                line=line,
                column=column,
            )
        return read


def _check_types(statement: Statement, analysed: Analysed) -> None:
    """Raise `TypeMismatch` for an output column whose type cannot be kept."""
    outputs = analysed.plan.expressions("projectList")
    for field, output in zip(analysed.fields, outputs, strict=True):
        try:
            arrow_type(field.type)
        except SchemaError as error:
            maker = next((each for each in _aliases(analysed.plan) if each.id == output.id), None)
            message = f"column {field.name!r}: {error}: cast it, or compute from it what is to be kept"
            raise statement.error(TypeMismatch, message, maker, name=field.name, type=field.type) from None


def _aliases(plan: CatalystOperator) -> Iterator[CatalystExpression]:
    for operator in plan.walk():
        for name in ("projectList", "aggregateExpressions", "windowExpressions"):
            yield from (each for each in operator.expressions(name) if each.kind == "Alias")


def _words(name: str) -> str:
    """CreateTable → CREATE TABLE."""
    return " ".join(re.findall(r"[A-Z][a-z]*", name.removesuffix("Statement"))).upper()
