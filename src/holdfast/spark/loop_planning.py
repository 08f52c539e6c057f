"""Views that are loops: WITH RECURSIVE of all kinds, and iterations of a function of DataFrames.

Either way Spark analyses ordinary queries over a leaf that stands for the loop's variable, and what they become is put
together as a `Loop` (`operators.loops.building`).

Definitions of a WITH RECURSIVE that refer to each other, or to themselves, are the variables of one loop. Their columns
are those of a term that refers to none of them; if Spark makes the union wider than that (INT and BIGINT), the columns
are those of the union, and everything is analysed once more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from holdfast.connectors.source import Source
from holdfast.errors import DeclarationError, SqlError, TypeMismatch, Unsupported
from holdfast.frontend.build_nodes import linear
from holdfast.frontend.loop_queries import Iteration
from holdfast.operators.join import Join
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.loops.building import Recursion, is_linear, loop_of
from holdfast.plan.nodes import Field, Node, Union
from holdfast.spark.recursive_statements import Definition, RecursiveStatement
from holdfast.spark.schemas import fields_of

_TRIES = 5
"""So often the columns of a recursive definition may become wider."""


@dataclass(frozen=True)
class Part:
    """A piece of a statement, converted."""

    node: Node
    reads: frozenset[str]
    fields: tuple[Field, ...]
    statics: Mapping[str, Source] = field(default_factory=dict)


Convert = Callable[[Any, Mapping[str, Node]], Part]
"""Converts a plan that Spark analysed, given what further leaves stand for."""

Leaf = Callable[[str, Sequence[Field]], tuple[str, Any]]
"""A leaf of that name and these columns: how the conversion knows it, and a plan of Spark's."""


def groups(definitions: Sequence[Definition]) -> list[tuple[Definition, ...]]:
    """The definitions, those together that refer to each other, each after those that it refers to."""
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
    """Whether Spark analyses the recursion itself: one definition, an anchor UNION ALL a term."""
    (first, *others) = group
    name = first.name.lower()
    return not others and first.union == "all" and len(first.terms) == 2 and name not in first.terms[0]


class RecursiveQuery:
    """A WITH RECURSIVE while it is converted."""

    def __init__(
        self,
        statement: RecursiveStatement,
        subject: str,
        view: str,
        convert: Convert,
        leaf: Leaf,
        bound: int | None,
        levels: int,
    ) -> None:
        """``bound``: of all its loops, whatever their text says; ``levels``: of those whose text says nothing."""
        self._statement, self._subject, self._view = statement, subject, view
        self._convert, self._leaf, self._bound, self._levels = convert, leaf, bound, levels
        self._known: dict[str, Node] = {}
        self._reads: set[str] = set()
        self._statics: dict[str, Source] = {}

    def converted(self) -> Part:
        """The whole statement."""
        for group in groups(self._statement.definitions):
            if is_recursive(group):
                self._loop(group)
            else:
                self._statement.include(group[0])
        part = self._part(self._statement.query())
        reads = frozenset(self._reads - self._known.keys())
        return Part(part.node, reads, part.fields, self._statics)

    def _part(self, plan: Any, further: Mapping[str, Node] | None = None) -> Part:
        part = self._convert(plan, {**self._known, **(further or {})})
        self._reads |= part.reads - (further or {}).keys()
        self._statics |= part.statics
        return part

    def _loop(self, group: Sequence[Definition]) -> None:
        schemas = self._first_columns(group)
        for _ in range(_TRIES):
            leaves = {each.name: self._bind(each, schemas[each.name]) for each in group}
            stand = {key: leaf for key, leaf in leaves.values()}
            parts = {each.name: self._part(self._statement.body(each), stand) for each in group}
            wider = {name: _retyped(schemas[name], part.fields) for name, part in parts.items()}
            if wider == schemas:
                break
            schemas = wider
        else:
            names = ", ".join(each.name for each in group)
            raise self._error(TypeMismatch, f"the columns of {names} become wider in every round: cast them")
        for each in group:
            if each.union == "all" and not is_linear(parts[each.name].node, [leaf for _, leaf in leaves.values()]):
                raise self._error(
                    Unsupported,
                    f"{each.name}: UNION ALL with a recursive term that is not linear is not supported: write UNION, "
                    "which asks for the fixpoint",
                    construct="UNION ALL with a recursive term that is not linear",
                )
        variables = [Recursion(leaves[each.name][1], parts[each.name].node) for each in group]
        bound = self._bound or max((each.depth or self._levels) for each in group)
        for index, each in enumerate(group):
            key, _ = leaves[each.name]
            self._known[key] = loop_of(variables, index, max_rounds=bound, subject=self._subject)

    def _first_columns(self, group: Sequence[Definition]) -> dict[str, tuple[Field, ...]]:
        """The columns of each definition, as the first term says that can be read."""
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
                names = ", ".join(each.name for each in group if each.name not in schemas)
                raise self._error(
                    SqlError, f"{names} refers to nothing but itself; begin it with a query that does not"
                )
            each, place = ready[0]
            schemas[each.name] = fields_of(
                StructType.fromJson(json.loads(self._statement.term(each, place).schema().json()))
            )
            self._bind(each, schemas[each.name])
        return schemas

    def _bind(self, definition: Definition, fields: tuple[Field, ...]) -> tuple[str, LoopLeaf]:
        key, plan = self._leaf(definition.name, fields)
        self._statement.bind(definition, plan)
        return key, LoopLeaf(f"with recursive {definition.name}", fields)

    def _error(self, kind: type[DeclarationError], message: str, **fields: object) -> DeclarationError:
        return kind(f"{self._subject}: {message}", view=self._view, **fields)


def _retyped(fields: Sequence[Field], others: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(Field(one.name, other.type) for one, other in zip(fields, others, strict=True))


def iterated(
    view: str,
    query: Iteration,
    start: Part,
    convert: Callable[[str, DataFrame, Mapping[str, Node]], Part],
    variable: tuple[str, DataFrame],
) -> Part:
    """The loop of an iteration: its ``start``, converted, and the ``variable`` as a DataFrame with its key."""
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
        changing = convert("what until returns", query.until(frame, now), known)
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
    """Raise unless the body gives rows like those that it is given."""
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
