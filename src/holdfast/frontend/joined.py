"""PySpark's ``join`` on a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import linear
from holdfast.frontend.chain import Chain
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.grouped import flat
from holdfast.frontend.joins import How, as_one
from holdfast.frontend.labels import unique
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.resolve import resolve
from holdfast.plan.expression import Tree, column, conjuncts
from holdfast.plan.nodes import Node

if TYPE_CHECKING:
    from holdfast.frontend.verbs import Table, _State

_HOW: dict[str, How] = {
    "inner": "inner", "cross": "inner", "outer": "full", "full": "full", "fullouter": "full", "left": "left",
    "leftouter": "left", "right": "right", "rightouter": "right", "semi": "semi", "leftsemi": "semi", "anti": "anti",
    "leftanti": "anti",
}  # fmt: skip
"""PySpark's names, without their underscores."""


def joined(table: Table, other: Table, on: Any, how: str) -> tuple[Node, Scope]:
    """The join of two tables, and what its columns are called."""
    text = table._text("join")
    kind = _HOW.get(how.lower().replace("_", ""))
    if kind is None:
        raise text.error(SqlError, f"how={how!r} is not a kind of join; known are {', '.join(_HOW)}", name=how)
    given = flat((on,)) if on is not None else []
    node, relations, merged = _apart(table._state, [])
    other_node, other_relations, other_merged = _apart(other._state, node.columns)
    left, right = Scope(relations, merged), Scope(other_relations, other_merged)
    chain = Chain([as_one(node)], {**merged, **other_merged} if kind not in ("semi", "anti") else merged)
    chain.relations = list(relations)
    using: list[tuple[Tree, Tree]] = []
    conditions: list[Tree] = []
    for value in given:
        if isinstance(value, str) and (table._has(value) or other._has(value)):
            using.append((table._column(value, left, text), table._column(value, right, text)))
            conditions.append(exp.EQ(this=using[-1][0], expression=using[-1][1]))
        else:
            both = {**merged, **other_merged, **{hidden.name: shown.name for shown, hidden in using}}
            scope = Scope(relations + other_relations, both)
            tree = resolve(
                table._expression("join", value),
                scope,
                text,
                aggregates="a join condition",
                windows="a join condition",
            )
            (check_temporal if kind == "inner" else check_timeless)(tree, "a join condition", text)
            conditions += conjuncts(tree)
    chain.join(as_one(other_node), other_relations, kind, conditions, using)
    return chain.settled(), chain.scope


def _apart(state: _State, taken: Sequence[str]) -> tuple[Node, tuple[Relation, ...], dict[str, str]]:
    """A side of a join with columns named ``alias.column``: its node, relations, and what USING merged in it."""
    names: dict[str, str] = {}
    relations: list[Relation] = []
    for relation in state.scope.relations:
        inner: list[str] = []
        for shown, old in zip(relation.columns, relation.internal, strict=True):
            wanted = f"{relation.alias}.{shown}" if relation.alias else shown
            names[old] = unique(wanted, [*taken, *names.values()])
            inner.append(names[old])
        relations.append(Relation(relation.alias, relation.node, relation.columns, tuple(inner)))
    node = linear(state.node, None, [(names[old], column(old)) for old in state.node.columns if old in names])
    merged = {names.get(hidden, hidden): names[shown] for hidden, shown in state.scope.merged.items()}
    return node, tuple(relations), merged
