"""Answering one plan from the rows of another: a `Linear` of a node as a `Linear` of a view of the same node.

The rewrites fuse what a view does last (filter, compute, leave columns away) with what its reader does first, so that
an epoch does both in one step. The view is then no part of its reader's plan: both are a `Linear` over one *core*, the
first node below that is none. The view's rows still say all that the reader needs, if

* every condition of the view is one of the reader's: no row is missing that the reader wants;
* the reader's other conditions and its outputs can be computed from the view's outputs: each column of the core that
  they read stands in an expression that the view has as an output.

Recovery reads the view's log then, instead of running what is behind it (`State.reading`). Epochs, plans and
fingerprints stay as they are.

Expressions are compared over positions of the core, as fingerprints are.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.plan.expression import Column, Tree, conjunction, conjuncts, references, renamed, substitute
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Named, Node

_LARGEST = 10_000
"""Expressions that would have more parts than this, written out, are not written out."""


@dataclass(frozen=True)
class _Stretch:
    """A stack of `Linear` nodes as one: conditions and outputs over positions of the core."""

    core: str
    """Its fingerprint."""

    conditions: tuple[Tree, ...]
    outputs: tuple[Named, ...]


def answer(node: Linear, view: Node) -> Linear | None:
    """``node`` as a `Linear` over ``view``, with the same rows in the same columns; None if that cannot be told."""
    if not isinstance(view, Linear):
        return None
    wanted, given = _stretch(node), _stretch(view)
    if wanted is None or given is None or wanted.core != given.core:
        return None
    if not set(given.conditions) <= set(wanted.conditions):
        return None
    # A constant needs no column.
    columns = {each.expression: each.name for each in reversed(given.outputs) if references(each.expression)}

    def over(tree: Tree) -> Tree:
        return tree.transform(lambda each: Column(columns[each], each.type) if each in columns else None)

    left = [over(tree) for tree in wanted.conditions if tree not in given.conditions]
    outputs = tuple(Named(each.name, over(each.expression)) for each in wanted.outputs)
    if not set(references(*left, *(each.expression for each in outputs))) <= set(view.columns):
        return None
    return Linear(view, conjunction(left), outputs)


def _stretch(node: Linear) -> _Stretch | None:
    conditions, outputs = conjuncts(node.predicate), list(node.outputs)
    below = node.input
    while isinstance(below, Linear):
        inner = {each.name: each.expression for each in below.outputs}
        if _size([*conditions, *(each.expression for each in outputs)], inner) > _LARGEST:
            return None
        conditions = [*conjuncts(below.predicate), *(substitute(tree, inner) for tree in conditions)]
        outputs = [Named(each.name, substitute(each.expression, inner)) for each in outputs]
        below = below.input
    # No column of a view has such a name.
    places = {name: f"\0{index}" for index, name in enumerate(below.columns)}
    return _Stretch(
        fingerprint(below),
        tuple(dict.fromkeys(renamed(tree, places) for tree in conditions)),
        tuple(Named(each.name, renamed(each.expression, places)) for each in outputs),
    )


def _size(outer: list[Tree], inner: dict[str, Tree]) -> int:
    """How many parts the outer expressions have with the inner ones written into them."""
    sizes = {name: sum(1 for _ in tree.walk()) for name, tree in inner.items()}
    return sum(sizes[each.name] if isinstance(each, Column) else 1 for tree in outer for each in tree.walk())
