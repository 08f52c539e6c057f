"""Answering one plan from the rows of another: rewriting a `Linear` of a node as a `Linear` of a view of the same node.

The rewrites fuse the last steps of a view (filter, compute, drop columns) with the first steps of its reader, so that
an epoch does both in one step. The view is then not part of its reader's plan: both are a `Linear` over one *core*, the
first node below that is not a `Linear`. The rows of the view still suffice to compute the reader if

* every condition of the view is also a condition of the reader: the view has every row that the reader wants;
* the reader's other conditions and its outputs can be computed from the view's outputs: each column of the core that
  they read occurs in an expression that is an output of the view.

Then recovery reads the view's log instead of computing the core again (`State.reading`). Epochs, plans and fingerprints
do not change.

Expressions are compared over positions of the core, as in fingerprints.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.plan.expression import Column, Tree, conjunction, conjuncts, references, renamed, substitute
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Named, Node

_LARGEST = 10_000
"""The most parts that expressions may have after inner expressions were written into them; above it, there is no
answer."""


@dataclass(frozen=True)
class _Stretch:
    """A stack of `Linear` nodes as one: conditions and outputs over positions of the core."""

    core: str
    """The core's fingerprint."""

    conditions: tuple[Tree, ...]
    outputs: tuple[Named, ...]


def answer(node: Linear, view: Node) -> Linear | None:
    """``node`` as a `Linear` over ``view``, with the same rows in the same columns; None if there is none."""
    if not isinstance(view, Linear):
        return None
    wanted, given = _stretch(node), _stretch(view)
    if wanted is None or given is None or wanted.core != given.core:
        return None
    if not set(given.conditions) <= set(wanted.conditions):
        return None
    # Constants are computed, not read from the view.
    columns = {each.expression: each.name for each in reversed(given.outputs) if references(each.expression)}

    def over(tree: Tree) -> Tree:
        return tree.transform(lambda each: Column(columns[each], each.type) if each in columns else None)

    left = [over(tree) for tree in wanted.conditions if tree not in given.conditions]
    outputs = tuple(Named(each.name, over(each.expression)) for each in wanted.outputs)
    if not set(references(*left, *(each.expression for each in outputs))) <= set(view.columns):
        return None
    return Linear(view, conjunction(left), outputs)


def _stretch(node: Linear) -> _Stretch | None:
    """The `Linear` nodes from ``node`` down to the core as one; None if that would have more than `_LARGEST` parts."""
    conditions, outputs = conjuncts(node.predicate), list(node.outputs)
    below = node.input
    while isinstance(below, Linear):
        inner = {each.name: each.expression for each in below.outputs}
        if _size([*conditions, *(each.expression for each in outputs)], inner) > _LARGEST:
            return None
        conditions = [*conjuncts(below.predicate), *(substitute(tree, inner) for tree in conditions)]
        outputs = [Named(each.name, substitute(each.expression, inner)) for each in outputs]
        below = below.input
    # Column names of a view cannot contain a zero byte.
    places = {name: f"\0{index}" for index, name in enumerate(below.columns)}
    return _Stretch(
        fingerprint(below),
        tuple(dict.fromkeys(renamed(tree, places) for tree in conditions)),
        tuple(Named(each.name, renamed(each.expression, places)) for each in outputs),
    )


def _size(outer: list[Tree], inner: dict[str, Tree]) -> int:
    """The number of parts of the outer expressions after the inner expressions were written into them."""
    sizes = {name: sum(1 for _ in tree.walk()) for name, tree in inner.items()}
    return sum(sizes[each.name] if isinstance(each, Column) else 1 for tree in outer for each in tree.walk())
