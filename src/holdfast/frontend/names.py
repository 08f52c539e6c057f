"""Names: which column of which input a reference means.

A `Scope` is what a SELECT's FROM clause offers: relations in order, each with an alias and columns. A reference is a
list of parts, ``a.b.c``. As in Spark, a reading as ``relation.column.field…`` goes before one as ``column.field…``,
names ignore case, and a column that USING joined is one column when it is not qualified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from holdfast.errors import AmbiguousName, UnknownName
from holdfast.frontend.nearest import did_you_mean
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Node


@dataclass(frozen=True)
class Relation:
    """One input of a FROM clause: its columns as the user calls them, and as the plan does."""

    alias: str
    node: Node
    columns: tuple[str, ...]
    internal: tuple[str, ...]

    def find(self, name: str) -> str | None:
        """The plan's name of the column that the user calls ``name``."""
        for shown, inner in zip(self.columns, self.internal, strict=True):
            if shown.lower() == name.lower():
                return inner
        return None

    def describe(self) -> str:
        return f"{self.alias or 'input'}({', '.join(self.columns)})"


class Subqueries(Protocol):
    """Plans a subquery of an expression: gives the tree that stands for its value (`frontend.attach`)."""

    def exists(self, written: Tree, outer: Scope) -> Tree: ...
    def within(self, values: list[Tree], written: Tree, outer: Scope) -> Tree: ...
    def scalar(self, written: Tree, outer: Scope) -> Tree: ...


@dataclass(frozen=True)
class Scope:
    """The relations that a reference can mean, and the columns that USING merged (hidden side → shown side)."""

    relations: tuple[Relation, ...]
    merged: Mapping[str, str]
    outer: Scope | None = None
    """What the enclosing query offers, if this is a subquery's."""

    linked: bool = False
    """Whether the subquery can be joined by what it refers to in the enclosing query."""

    subqueries: Subqueries | None = None
    """Plans the subqueries of expressions; None where there may be none."""

    computed: Mapping[str, str] = field(default_factory=dict)
    """Columns that are not to be seen in ``*``, where no other has the name: user's name, lower case → plan's name."""

    def visible(self, relation: Relation | None = None) -> list[tuple[str, str]]:
        """(user's name, plan's name) of what ``*`` (or ``relation.*``) stands for, in Spark's order."""
        if relation is not None:
            return list(zip(relation.columns, relation.internal, strict=True))
        pairs = [pair for each in self.relations for pair in zip(each.columns, each.internal, strict=True)]
        keys = {inner: place for place, inner in enumerate(dict.fromkeys(self.merged.values()))}
        pairs = [pair for pair in pairs if pair[1] not in self.merged]
        first = sorted((pair for pair in pairs if pair[1] in keys), key=lambda pair: keys[pair[1]])
        return first + [pair for pair in pairs if pair[1] not in keys]

    def called(self, alias: str) -> list[Relation]:
        """The relations of that alias: one at most in SQL; several where a verb joined a table to itself."""
        return [each for each in self.relations if each.alias and each.alias.lower() == alias.lower()]

    def candidates(self, name: str) -> list[tuple[Relation, str]]:
        """The relations that have a column ``name``; of columns that USING merged, only the shown one."""
        found = [(each, inner) for each in self.relations if (inner := each.find(name)) is not None]
        return [(each, inner) for each, inner in found if inner not in self.merged]

    def describe(self) -> str:
        return ", ".join(each.describe() for each in self.relations)


def parts(reference: Tree) -> list[exp.Identifier] | None:
    """The identifiers of ``a.b.c``; None if the tree is not a chain of names."""
    if isinstance(reference, exp.Identifier):
        return [reference]
    if isinstance(reference, exp.Column):
        return [part for part in reference.parts if isinstance(part, exp.Identifier)]
    if isinstance(reference, exp.Dot) and isinstance(reference.expression, exp.Identifier):
        first = parts(reference.this)
        return None if first is None else [*first, reference.expression]
    return None


def fields_of(tree: Tree, fields: Sequence[exp.Identifier]) -> Tree:
    """``tree.field.field…``"""
    for each in fields:
        tree = exp.Dot(this=tree, expression=exp.Identifier(this=each.name, quoted=True))
    return tree


def look_up(scope: Scope, names: Sequence[exp.Identifier], text: Text) -> Tree | None:
    """The column (and its fields) that the names mean; None if there is none. Raises `AmbiguousName`."""
    if len(names) > 1:
        called = scope.called(names[0].name)
        found = [(each, inner) for each in called if (inner := each.find(names[1].name)) is not None]
        if found:
            return fields_of(column(_only(found, names[1].name, names[0], text)), names[2:])
    found = scope.candidates(names[0].name)
    if found:
        return fields_of(column(_only(found, names[0].name, names[0], text)), names[1:])
    if (inner := scope.computed.get(names[0].name.lower())) is not None:
        return fields_of(column(inner), names[1:])
    return None


def _only(found: list[tuple[Relation, str]], name: str, place: Tree, text: Text) -> str:
    if len(found) == 1:
        return found[0][1]
    choices = [f"{each.alias}.{name}" if each.alias else f"{name} of {each.describe()}" for each, _ in found]
    advice = "" if len(set(choices)) > 1 and all(each.alias for each, _ in found) else "; give the inputs aliases"
    message = f"column {name!r} is ambiguous: it can mean {' or '.join(choices)}{advice}"
    raise text.error(AmbiguousName, message, place, name=name, candidates=choices)


def unknown_column(scope: Scope, names: Sequence[exp.Identifier], text: Text, also: Sequence[str] = ()) -> UnknownName:
    """The error for a reference that `look_up` did not find; ``also`` are further names that would have been legal."""
    written = ".".join(name.name for name in names)
    called = scope.called(names[0].name) if len(names) > 1 else []
    if called:
        missing, known, where = names[1].name, list(called[0].columns), called[0].describe()
    else:
        missing = names[0].name
        known = [each for relation in scope.relations for each in relation.columns] + list(also)
        where = scope.describe()
        if len(names) > 1:
            known += [each.alias for each in scope.relations]
    hint = did_you_mean(missing, known)
    return text.error(
        UnknownName, f"column {written!r} not found in {where}{hint}", names[0], name=written, candidates=known
    )


def unknown_table(name: str, known: Sequence[str], text: Text, tree: Tree) -> UnknownName:
    """The error for a table that is neither declared nor a CTE."""
    hint = did_you_mean(name, known)
    if not hint:
        hint = f"; known are {', '.join(known)}" if known else "; nothing is declared yet"
    return text.error(UnknownName, f"table {name!r} not found{hint}", tree, name=name, candidates=list(known))
