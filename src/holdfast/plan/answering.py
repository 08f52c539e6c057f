"""Answering one plan from the rows of another: a `Linear` of a node as a `Linear` of a view of the same node.

The rewrites fuse what a view does last (filter, compute, leave columns away) with what its reader does first, so that
an epoch does both in one step. The view is then no part of its reader's plan: both are a `Linear` over one *core*, the
first node below that is none. The view's rows still say all that the reader needs, if

* every condition of the view is one of the reader's: no row is missing that the reader wants;
* the reader's other conditions and its outputs can be computed from the view's outputs: each column of the core that
  they read stands in an expression that the view has as an output.

Recovery reads the view's log then, instead of running what is behind it (`State.reading`). Epochs, plans and
fingerprints stay as they are.

Expressions are compared as canonical text over positions of the core, as fingerprints are.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from holdfast.plan.expression import (
    Tree,
    column,
    conjunction,
    conjuncts,
    read,
    render,
    replace_columns,
)
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Named, Node

_LARGEST = 10_000
"""Expressions that would have more parts than this, written out, are not written out."""


@dataclass(frozen=True)
class _Stretch:
    """A stack of `Linear` nodes as one: conditions and outputs over positions of the core."""

    core: str
    """Its fingerprint."""

    conditions: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    """Name and expression."""


def answer(node: Linear, view: Node) -> Linear | None:
    """``node`` as a `Linear` over ``view``, with the same rows in the same columns; None if that cannot be told."""
    if not isinstance(view, Linear):
        return None
    wanted, given = _stretch(node), _stretch(view)
    if wanted is None or given is None or wanted.core != given.core:
        return None
    if not set(given.conditions) <= set(wanted.conditions):
        return None
    # A constant needs no column, and must stay where syntax wants one.
    columns = {text: name for name, text in reversed(given.outputs) if read(text).find(exp.Column)}
    conditions = [_over(read(text), columns) for text in wanted.conditions if text not in given.conditions]
    outputs = [_over(read(text), columns) for _, text in wanted.outputs]
    left = conjunction([tree for tree in conditions if tree is not None])
    named = tuple(Named(name, render(tree)) for (name, _), tree in zip(wanted.outputs, outputs, strict=True) if tree)
    if None in conditions or len(named) < len(outputs):
        return None
    return Linear(view, None if left is None else render(left), named)


def _stretch(node: Linear) -> _Stretch | None:
    conditions = [] if node.predicate is None else conjuncts(read(node.predicate))
    outputs = [(each.name, read(each.sql)) for each in node.outputs]
    below = node.input
    while isinstance(below, Linear):
        inner = {each.name: read(each.sql) for each in below.outputs}
        if _size([*conditions, *(tree for _, tree in outputs)], inner) > _LARGEST:
            return None
        conditions = [replace_columns(tree, inner) for tree in conditions]
        outputs = [(name, replace_columns(tree, inner)) for name, tree in outputs]
        if below.predicate is not None:
            conditions = [*conjuncts(read(below.predicate)), *conditions]
        below = below.input
    places = {name: column(f"${place}") for place, name in enumerate(below.columns)}
    return _Stretch(
        fingerprint(below),
        tuple(dict.fromkeys(render(replace_columns(tree, places)) for tree in conditions)),
        tuple((name, render(replace_columns(tree, places))) for name, tree in outputs),
    )


def _size(outer: list[Tree], inner: dict[str, Tree]) -> int:
    """How many parts the outer expressions have with the inner ones written into them."""
    sizes = {name: sum(1 for _ in tree.walk()) for name, tree in inner.items()}
    return sum(sizes[each.name] if isinstance(each, exp.Column) else 1 for tree in outer for each in tree.walk())


def _over(tree: Tree, columns: dict[str, str]) -> Tree | None:
    """The expression over columns that hold some expressions already; None if it reads anything else."""
    root = exp.Tuple(expressions=[tree])
    waiting: list[Tree] = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (exp.Identifier, exp.DataType)):
            continue  # the name of a field or of a lambda's variable; a type
        if (name := columns.get(render(each))) is not None:
            each.replace(column(name))
        elif isinstance(each, exp.Column):
            return None
        else:
            waiting += each.iter_expressions()
    (found,) = root.expressions
    return found if isinstance(found, exp.Expr) else None
