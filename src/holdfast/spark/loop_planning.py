"""Views that are loops: WITH RECURSIVE of all kinds, and iterations of a function of DataFrames.

In both cases Spark analyses ordinary queries over a leaf that stands for the loop's variable, and the converted pieces
are put together as a `Loop` (`operators.loops.building`).

Definitions of a WITH RECURSIVE that refer to each other, or to themselves, are the variables of one loop. The columns
of a definition are those of a term that refers to no definition of the group. If Spark makes the union's columns wider
(INT and BIGINT), the union's columns are used, and everything is analysed once more.

A WITH RECURSIVE may be anywhere in a statement. In the parsed plan it is replaced by a query over leaves for its
recursive names, so that the statement around it is an ordinary one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import lit
from pyspark.sql.types import StructType

from holdfast.connectors.source import Source
from holdfast.errors import DeclarationError, SqlError, TypeMismatch, Unsupported
from holdfast.frontend.build_nodes import linear
from holdfast.frontend.loop_queries import Iteration, RecursionLimits
from holdfast.operators.join import Join
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.loops.building import Recursion, is_linear, loop_of
from holdfast.plan.nodes import Field, Node, Union
from holdfast.spark.recursive_statements import Definition, RecursiveStatement, WithClause
from holdfast.spark.schemas import fields_of

_TRIES = 5
"""How many times the columns of a recursive definition may become wider."""


@dataclass(frozen=True)
class Part:
    """A converted piece of a statement: its plan, the collections that it reads, its columns."""

    node: Node
    reads: frozenset[str]
    fields: tuple[Field, ...]
    statics: Mapping[str, Source] = field(default_factory=dict)


Convert = Callable[[Any, Mapping[str, Node]], Part]
"""Convert a plan that Spark analysed. The mapping says what the leaves of loop variables stand for."""

Leaf = Callable[[str, Sequence[Field]], tuple[str, Any]]
"""Make a leaf of that name and these columns. Return its key for the conversion, and Spark's plan of it."""


def groups(definitions: Sequence[Definition]) -> list[tuple[Definition, ...]]:
    """Group definitions that refer to each other. Each group comes after the groups to which it refers."""
    by_name = {each.name.lower(): each for each in definitions}
    below = {name: {other for other in each.mentions if other in by_name} for name, each in by_name.items()}
    reach: dict[str, set[str]] = {}
    for name in below:
        seen: set[str] = set()
        waiting = list(below[name])
        while waiting:
            if (other := waiting.pop()) not in seen:
                seen.add(other)
                waiting += below[other]
        reach[name] = seen
    found: list[tuple[Definition, ...]] = []
    placed: set[str] = set()
    pending = list(by_name)
    while pending:
        for name in pending:
            members = {name} | {other for other in reach[name] if name in reach[other]}
            if reach[name] <= placed | members:
                found.append(tuple(by_name[each] for each in by_name if each in members))
                placed |= members
                pending = [each for each in pending if each not in members]
                break
    return found


def is_recursive(group: Sequence[Definition]) -> bool:
    return len(group) > 1 or group[0].name.lower() in group[0].mentions


def is_for_spark(group: Sequence[Definition]) -> bool:
    """Whether Spark can analyse the recursion itself: a single definition of the form anchor UNION ALL term."""
    (first, *others) = group
    plain = not others and not first.has_own_with and first.union == "all" and len(first.terms) == 2
    return plain and first.name.lower() not in first.terms[0]


class RecursiveQuery:
    """The conversion of a statement with a WITH RECURSIVE."""

    def __init__(
        self,
        statement: RecursiveStatement,
        subject: str,
        view: str,
        convert: Convert,
        leaf: Leaf,
        bound: int | None,
        limits: RecursionLimits,
    ) -> None:
        """``bound``: the most rounds of every loop of the statement, whatever its text says. ``limits``: for the loops
        whose text says nothing."""
        self._statement, self._subject, self._view = statement, subject, view
        self._convert, self._leaf, self._bound, self._limits = convert, leaf, bound, limits
        self._known: dict[str, Node] = {}
        """Key of a leaf → its meaning: the loop's variable, and once the loop is made, the loop."""
        self._reads: set[str] = set()
        self._statics: dict[str, Source] = {}
        self._clauses = 0
        self.is_inside = False
        """Whether the piece that is analysed now belongs to a WITH clause inside a query."""

    def converted(self) -> Part:
        """Convert the whole statement."""
        part = self._part(self._statement.plan, None)
        reads = frozenset(self._reads - self._known.keys())
        return Part(part.node, reads, part.fields, self._statics)

    def _part(self, plan: Any, around: WithClause | None) -> Part:
        """Convert a piece of the statement, which may use the names of a clause and of the clauses around it."""
        part = self._convert(self._statement.analysed(self._plain(plan, around), around), self._known)
        self._reads |= part.reads
        self._statics |= part.statics
        return part

    def _plain(self, plan: Any, around: WithClause | None) -> Any:
        """Return the plan with each WITH clause that needs loops replaced by a query over leaves."""
        for parsed in self._statement.clauses(plan):
            if needs_loops(self._statement, parsed):
                plan = self._statement.replaced(plan, parsed, self._clause(parsed, around))
        return plan

    def _clause(self, parsed: Any, around: WithClause | None) -> Any:
        clause = self._statement.clause(parsed, around)
        self._clauses += 1
        number, outer = self._clauses, self.is_inside
        self.is_inside = around is not None or not self._statement.is_clause
        if clause.is_recursive:
            self._check_forward(clause)
        for group in groups(clause.definitions) if clause.is_recursive else [(each,) for each in clause.definitions]:
            if clause.is_recursive and is_recursive(group):
                self._loop(clause, number, group)
            else:
                clause.include(group[0], self._plain(clause.body(group[0]), clause))
        found = clause.over(self._plain(clause.query(), clause))
        self.is_inside = outer
        return found

    def _check_forward(self, clause: WithClause) -> None:
        """Raise `Unsupported` if a definition mentions a later definition whose name is also a table, a view or an
        outer definition: Spark would read that one. (The view's own name, when the view is declared again, is no such
        case: its query cannot read the view itself.)"""
        later: dict[str, str] = {}
        for each in reversed(clause.definitions):
            for name in sorted(each.mentions & later.keys() - {each.name.lower()}):
                own = name == self._view.lower()
                if clause.knows_outside(name) or (not own and self._statement.has_table(name)):
                    raise self._error(
                        Unsupported,
                        each,
                        f"{each.name} refers to '{later[name]}', which is defined behind it and is the name of "
                        "something else, too, which Spark would take: call the definition something else",
                        construct="a reference to a later definition with the name of a table or view",
                    )
            later[each.name.lower()] = each.name

    def _loop(self, clause: WithClause, number: int, group: Sequence[Definition]) -> None:
        schemas = self._first_columns(clause, number, group)
        for _ in range(_TRIES):
            leaves = {each.name: self._bind(clause, number, each, schemas[each.name]) for each in group}
            parts = {each.name: self._part(clause.body(each), clause) for each in group}
            wider = {name: _retyped(schemas[name], part.fields) for name, part in parts.items()}
            if wider == schemas:
                break
            schemas = wider
        else:
            names = ", ".join(each.name for each in group)
            raise self._error(TypeMismatch, group[0], f"the columns of {names} become wider in every round: cast them")
        for each in group:
            if each.union == "all" and not is_linear(parts[each.name].node, [leaf for _, leaf in leaves.values()]):
                raise self._error(
                    Unsupported,
                    each,
                    f"{each.name}: UNION ALL with a recursive term that is not linear is not supported: write UNION, "
                    "which asks for the fixpoint",
                    construct="UNION ALL with a recursive term that is not linear",
                )
        variables = [Recursion(leaves[each.name][1], parts[each.name].node) for each in group]
        depths = [self._limits.levels if each.depth is None else each.depth for each in group]
        bound = max(depths) if self._bound is None else self._bound
        rows = self._limits.rows if any(each.union == "all" for each in group) else None
        for index, each in enumerate(group):
            key, _ = leaves[each.name]
            self._known[key] = loop_of(variables, index, max_rounds=bound, max_rows=rows, subject=self._subject)

    def _first_columns(
        self, clause: WithClause, number: int, group: Sequence[Definition]
    ) -> dict[str, tuple[Field, ...]]:
        """Return the columns of each definition: those of the first of its terms whose names are all known."""
        schemas: dict[str, tuple[Field, ...]] = {}
        own = {each.name.lower() for each in group}
        while len(schemas) < len(group):
            known = {name.lower() for name in schemas}
            ready = [
                (each, place)
                for each in group
                if each.name not in schemas
                for place, names in enumerate(each.terms)
                if names & own <= known
            ]
            if not ready:
                lacking = [each for each in group if each.name not in schemas]
                names = ", ".join(each.name for each in lacking)
                what = f"{names} refers to nothing but itself; begin it with a query that does not"
                if len(lacking) == 1 and not lacking[0].union:
                    what = (
                        f"{names} refers to itself, and is no union; expected a UNION of queries, one of which does "
                        "not: ORDER BY, LIMIT, EXCEPT and INTERSECT may be in a term, in parentheses, or in the query "
                        "behind"
                    )
                raise self._error(SqlError, lacking[0], what)
            each, place = ready[0]
            plan = self._statement.analysed(self._plain(clause.term(each, place), clause), clause)
            schemas[each.name] = fields_of(StructType.fromJson(json.loads(plan.schema().json())))
            self._bind(clause, number, each, schemas[each.name])
        return schemas

    def _bind(
        self, clause: WithClause, number: int, definition: Definition, fields: tuple[Field, ...]
    ) -> tuple[str, LoopLeaf]:
        name = f"{number} {definition.name}"
        key, plan = self._leaf(name, fields)
        clause.bind(definition, plan)
        leaf = LoopLeaf(f"with recursive {name}", fields)
        self._known[key] = leaf
        return key, leaf

    def _error(
        self, kind: type[DeclarationError], definition: Definition, message: str, **fields: object
    ) -> DeclarationError:
        """Return an error with the place of a definition in the text."""
        if definition.line is None or definition.column is None:
            return kind(f"{self._subject}: {message}", view=self._view, **fields)
        line, column = definition.line, definition.column
        place = f"line {line}, column {column}"
        return kind(f"{self._subject}, {place}: {message}", view=self._view, line=line, column=column, **fields)


def needs_loops(statement: RecursiveStatement, parsed: Any) -> bool:
    """Whether a WITH clause, or a clause inside it, has a recursion that Spark does not analyse."""
    clause = statement.clause(parsed, None)
    if clause.is_recursive:
        recursions = [group for group in groups(clause.definitions) if is_recursive(group)]
        if not all(map(is_for_spark, recursions)):
            return True
    inside = [clause.query(), *map(clause.body, clause.definitions)]
    return any(needs_loops(statement, each) for plan in inside for each in statement.clauses(plan))


def _retyped(fields: Sequence[Field], others: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(Field(one.name, other.type) for one, other in zip(fields, others, strict=True))


def iterated(
    view: str,
    query: Iteration,
    start: Part,
    convert: Callable[[str, DataFrame, Mapping[str, Node]], Part],
    variable: tuple[str, DataFrame],
) -> Part:
    """Build the loop of an iteration. ``start``: the converted start. ``variable``: the loop's variable as (key,
    DataFrame)."""
    key, frame = variable
    leaf = LoopLeaf("iterated", start.fields)
    known: dict[str, Node] = {key: leaf}
    now = query.body(frame)
    part = convert("what the body returns", now, known)
    _check_columns(view, start.fields, part.fields)
    body: Node = linear(
        part.node, None, list(zip(start.node.columns, map(part.node.column, part.node.columns), strict=True))
    )
    parts = [start, part]
    rounds = query.until if isinstance(query.until, int) else None
    if callable(query.until):
        found = query.until(frame, now)
        if isinstance(found, DataFrame):  # only whether it has a row counts, so its column names do not matter
            found = found.select(lit(1).alias("changing"))
        changing = convert("what until returns", found, known)
        parts.append(changing)
        body = Union((Join(body, changing.node, (), (), "semi"), Join(leaf, changing.node, (), (), "anti")))
    reads = frozenset().union(*(each.reads for each in parts)) - {key}
    statics = {name: source for each in parts for name, source in each.statics.items()}
    if rounds == 0:
        return Part(start.node, reads, start.fields, statics)
    node = loop_of(
        [Recursion(leaf, body, start.node)], 0, max_rounds=query.max_rounds, rounds=rounds, subject=f"view '{view}'"
    )
    return Part(node, reads, start.fields, statics)


def _check_columns(view: str, start: Sequence[Field], body: Sequence[Field]) -> None:
    """Raise `TypeMismatch` unless the body returns rows of the types that it is given."""
    if [each.type for each in start] == [each.type for each in body]:
        return
    wanted, found = (", ".join(f"{each.name} {each.type}" for each in some) for some in (start, body))
    raise TypeMismatch(
        f"view '{view}': the body of an iteration returns rows like those it is given, expected ({wanted}), found "
        f"({found}); select and cast its columns, or those of the start",
        view=view,
        expected=wanted,
        found=found,
    )
