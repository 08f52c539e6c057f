"""Nondeterministic calls: what is drawn for a row instead of computed from it.

While an expression is converted, such a call becomes a *wish*: a call that carries the `Drawn` it stands for, still
without a name, in its argument ``draw``. A wish is a value like any other tree: it can be copied (an alias that is used
twice is drawn once), moved and compared. When a `Linear` is built (`frontend.build`), its wishes become columns of a
`Draw` below it; so no wish ever reaches an expression of the plan.

A call of a user's deterministic function is a wish too, for a column of an `Apply`: its ``draw`` is the `Function`.

All calls of the clock are one wish. Each call of a random function or a user's function is one of its own: its salt is
its number in the query. Those with equal seeds are one again, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.plan.expression import Tree
from holdfast.plan.nodes import Drawn, Function


class Refusing(Protocol):
    """Refuses a construct, at the place of a tree."""

    def unsupported(self, construct: str, place: Tree | None, advice: str = "") -> Unsupported: ...


CLOCK = Drawn("", "clock", (), "timestamp")
"""What all calls of the clock wish for."""


def wished(tree: Tree) -> Drawn | Function | None:
    """What the call draws, or the function that it calls, if this node is a wish."""
    found = tree.args.get("draw") if isinstance(tree, exp.Anonymous) else None
    return found if isinstance(found, (Drawn, Function)) else None


def has_wish(tree: Tree) -> bool:
    return any(wished(node) is not None for node in tree.walk())


def innermost(trees: Sequence[Tree]) -> list[Tree]:
    """The wishes in these trees that hold no other wish, each once, in order."""
    found = (node for tree in trees for node in tree.walk(bfs=False) if wished(node) is not None)
    return list(dict.fromkeys(node for node in found if not any(has_wish(each) for each in node.expressions)))
