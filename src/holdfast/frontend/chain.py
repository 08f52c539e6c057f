"""Relations that are joined one after the other, from left to right.

Inner joins wait: which relation is joined to which, and by what, is decided when all their conditions are known
(`joins.join_all`). An outer, semi or anti join is where the order matters: what waits to its left is joined first, and
the whole is one relation from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.frontend.build import extend, linear
from holdfast.frontend.joins import How, as_one, join_all, join_outer
from holdfast.frontend.labels import unique
from holdfast.frontend.names import Relation, Scope
from holdfast.plan.expression import Tree, column, conjunction
from holdfast.plan.nodes import Node


class Chain:
    """Joins so far: the relations that names can mean, and the units and conditions that are yet to be joined."""

    def __init__(self, relations: list[Relation], merged: dict[str, str] | None = None) -> None:
        self.relations = relations
        self.units = list(relations)
        self.conditions: list[Tree] = []
        self.merged: dict[str, str] = merged or {}
        self.after_comma = False
        """Whether a generator behind a comma is in it: then its left side is not what a RIGHT or FULL JOIN means."""

    @property
    def scope(self) -> Scope:
        return Scope(tuple(self.relations), self.merged)

    def join(
        self,
        unit: Relation,
        relations: Sequence[Relation],
        how: How,
        conditions: list[Tree],
        using: list[tuple[Tree, Tree]],
    ) -> None:
        """Join one more unit, in which names can mean ``relations``.

        ``using``: the columns (ours, its own) that are one column from now on.
        """
        if how == "inner":
            self.units.append(unit)
            self.conditions += conditions
        else:
            node = join_outer(self.settled(), unit.node, how, conditions)
            if how == "full":
                node = self._merge(node, using)
            self.units = [as_one(node)]
        if how in ("semi", "anti"):
            # No column of the other side is left that could be hidden; but the columns of USING come first in ``*``.
            self.merged = {f"\0{right.name}": left.name for left, right in using} | self.merged
            return
        self.relations = [*self.relations, *relations]
        if how == "right":
            self._hide({left.name: right.name for left, right in using})
        elif how != "full":
            self._hide({right.name: left.name for left, right in using})

    def _hide(self, merged: dict[str, str]) -> None:
        """Show these columns (hidden → shown) as one. The latest USING comes first, as in Spark's ``*``."""
        self.merged = merged | {hidden: shown for hidden, shown in self.merged.items() if hidden not in merged}

    def settled(self) -> Node:
        """What waits, joined."""
        names = {name for unit in self.units for name in unit.internal}
        mine = [each for each in self.conditions if {node.name for node in each.find_all(exp.Column)} <= names]
        self.conditions = [each for each in self.conditions if all(each is not other for other in mine)]
        node, rest = join_all([one.node for one in self.units], mine)
        return linear(node, conjunction(rest), [(name, column(name)) for name in node.columns])

    def _merge(self, node: Node, using: list[tuple[Tree, Tree]]) -> Node:
        """``node`` with a column for each pair: whichever of the two is there."""
        found: dict[str, str] = {}
        for left, right in using:
            shown = next(name for name, inner in self.scope.visible() if inner == left.name)
            inner = unique(shown, node.columns)
            node = extend(node, [(inner, exp.Anonymous(this="coalesce", expressions=[left.copy(), right.copy()]))])
            self.relations = [*self.relations, Relation("", node, (shown,), (inner,))]
            found |= {left.name: inner, right.name: inner}
        self._hide(found)
        return node
