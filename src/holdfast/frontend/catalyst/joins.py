"""Catalyst's `Join`, and the conditions above and between joins.

Spark leaves conditions where they were written: ``FROM a, b WHERE a.k = b.k`` is a Filter above a join of all rows with
all rows, and a subquery that became a join stands between a Filter and the joins to which its conditions belong. So a
tree of joins, with the Filters and the column choices between them, is read as a whole (`_Tree`) before any node is
made:

- Inner joins that follow each other are one list of relations and one list of conditions (`_Inner`), of which
  `frontend.joins.join_all` makes keys.
- A condition above any other join (`_Outer`) moves to the side whose rows come out unchanged, if it reads that side
  alone: the left one, the right one of a right join, none of a full join.

Columns get their names when a relation is read, so that all names in a tree differ. Spark refers to columns by id
alone. A condition that draws (``rand()``) stays where it is; a condition on the clock may move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.frontend.build_nodes import columns, linear
from holdfast.frontend.catalyst import subqueries
from holdfast.frontend.catalyst.clock import check_timeless
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import CatalystOperator
from holdfast.frontend.joins import join_all, join_outer, used
from holdfast.frontend.placeholders import has_placeholder, is_timed
from holdfast.plan.expression import Tree, conjunction, conjuncts
from holdfast.plan.nodes import Node

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter

Outputs = list[tuple[int, str]]
"""Spark's attributes, in order: id, and column."""

_PASSED = frozenset(("View", "PipeOperator", "ResolvedHint", "SubqueryAlias"))
"""Operators that pass on the rows of their child, under another name."""


def join(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a join, or Filters above one."""
    rows, outputs = _Tree(converter).read(operator)
    return Relation(rows.built(), tuple(outputs))


def is_above_join(converter: Converter, operator: CatalystOperator) -> bool:
    """Whether this operator is a join, or leads to one through operators that only choose rows and columns."""
    while operator.kind == "Filter" or _is_passed(converter, operator) or _is_choice(operator):
        operator = operator.child
    return operator.kind == "Join"


def _is_passed(converter: Converter, operator: CatalystOperator) -> bool:
    return operator.kind in _PASSED and not converter.is_collection(operator)


def _is_choice(operator: CatalystOperator) -> bool:
    """Whether it is a Project that computes nothing."""
    return operator.kind == "Project" and all(
        (each.children[0] if each.kind == "Alias" else each).kind == "AttributeReference"
        for each in operator.expressions("projectList")
    )


@dataclass
class _Inner:
    """The inner join of ``parts``, with the rows for which all ``conditions`` hold."""

    parts: list[Node | _Outer]
    conditions: list[Tree] = field(default_factory=list)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.columns)

    def built(self) -> Node:
        rest: list[Tree] = []
        for condition in self.conditions:
            owner = next((part for part in self.parts if _is_about(condition, part)), None)
            if isinstance(owner, _Outer) and not _is_drawn(condition):
                owner.keep(condition)
            else:
                rest.append(condition)
        node, rest = join_all([part.built() if isinstance(part, _Outer) else part for part in self.parts], rest)
        return linear(node, conjunction(rest), columns(node, self.columns))


@dataclass
class _Outer:
    """A join that is not an inner one: two sides matched where all of ``on`` hold, then filtered by ``above``.

    ``value`` is the column of an existence join that says whether a row matches.
    """

    converter: Converter
    operator: CatalystOperator
    how: str
    left: _Inner
    right: _Inner
    on: list[Tree]
    value: str = ""
    above: list[Tree] = field(default_factory=list)

    @property
    def columns(self) -> tuple[str, ...]:
        match self.how:
            case "LeftSemi" | "LeftAnti":
                return self.left.columns
            case "ExistenceJoin":
                return (*self.left.columns, self.value)
        return self.left.columns + self.right.columns

    def keep(self, condition: Tree) -> None:
        """Keep only the rows for which ``condition`` holds."""
        whole = {"RightOuter": self.right, "FullOuter": None}.get(self.how, self.left)
        if whole is not None and _is_about(condition, whole):
            whole.conditions.append(condition)
        else:
            self.above.append(condition)

    def built(self) -> Node:
        on: list[Tree] = []
        for condition in self.on:
            if _is_about(condition, self.right) and self.how not in ("RightOuter", "FullOuter"):
                self.right.conditions.append(condition)
            elif _is_about(condition, self.left) and self.how in ("RightOuter", "LeftSemi"):
                self.left.conditions.append(condition)
            else:
                check_timeless(condition, "ON", self.converter.statement)
                on.append(condition)
        joined = self._joined(self.left.built(), self.right.built(), on)
        return linear(joined, conjunction(self.above), columns(joined, self.columns))

    def _joined(self, left: Node, right: Node, on: list[Tree]) -> Node:
        match self.how:
            case "LeftOuter":
                return join_outer(left, right, "left", on)
            case "RightOuter":
                return join_outer(left, right, "right", on)
            case "FullOuter":
                return join_outer(left, right, "full", on)
            case "LeftSemi":
                return subqueries.matching(left, right, on)
            case "LeftAnti":
                return subqueries.lacking(left, right, on)
            case "ExistenceJoin":
                return subqueries.marked(left, right, on, self.value)
            case "LeftSingle":
                return subqueries.single(left, right, on, self.converter.statement)
        raise self.converter.statement.unsupported(f"a join of type {self.how}", self.operator)


def _is_about(condition: Tree, rows: Node | _Inner | _Outer) -> bool:
    """Whether the condition reads columns of these rows, and no others."""
    names = used(condition)
    return bool(names) and names <= set(rows.columns)


def _is_drawn(condition: Tree) -> bool:
    return has_placeholder(condition) and not is_timed(condition)


class _Tree:
    """Reads a tree of joins."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._taken: list[str] = []

    def read(self, operator: CatalystOperator) -> tuple[_Inner, Outputs]:
        """Return the rows of an operator, not yet built, and its columns."""
        if operator.kind == "Join":
            return self._join(operator)
        if is_above_join(self._converter, operator):
            rows, outputs = self.read(operator.child)
            if operator.kind == "Filter":
                rows.conditions += self._conditions(operator, outputs)
                if any(map(_is_drawn, rows.conditions)):
                    rows = _Inner([rows.built()])  # values are drawn for these rows, before they are joined
            if operator.kind == "Project":
                names = dict(outputs)
                items = operator.expressions("projectList")
                sources = [each.children[0] if each.kind == "Alias" else each for each in items]
                outputs = [(each.id, names[source.id]) for each, source in zip(items, sources, strict=True)]
            return rows, outputs
        relation = self._converter.relation(operator).apart(self._taken)
        self._taken += relation.node.columns
        return _Inner([relation.node]), list(relation.outputs)

    def _join(self, operator: CatalystOperator) -> tuple[_Inner, Outputs]:
        how, exists = _type(operator)
        left, outputs = self.read(operator.children[0])
        right, others = self.read(operator.children[1])
        on = self._conditions(operator, [*outputs, *others])
        if how in ("Inner", "Cross"):
            return _Inner([*left.parts, *right.parts], [*left.conditions, *right.conditions, *on]), [*outputs, *others]
        outer = _Outer(self._converter, operator, how, left, right, on)
        if exists is not None:
            outer.value = subqueries.flag_name(self._taken)
            self._taken.append(outer.value)
            return _Inner([outer]), [*outputs, (exists, outer.value)]
        return _Inner([outer]), outputs if how in ("LeftSemi", "LeftAnti") else [*outputs, *others]

    def _conditions(self, operator: CatalystOperator, outputs: Outputs) -> list[Tree]:
        condition = operator.expression("condition")
        if condition is None:
            return []
        clause = "ON" if operator.kind == "Join" else "WHERE"
        tree = self._converter.condition(condition, dict(outputs), clause)
        return [each for each in conjuncts(tree) if not subqueries.is_true(each)]


def _type(operator: CatalystOperator) -> tuple[str, int | None]:
    """Return the type of a join, and the id of the attribute that an existence join adds."""
    kind = operator.parameters["joinType"]
    name = str(kind.get("object") or kind["product-class"]).rsplit(".", 1)[-1].rstrip("$")
    exists: Sequence[dict[str, dict[str, int]]] = kind.get("exists") or ()
    return name, int(exists[0]["exprId"]["id"]) if exists else None
