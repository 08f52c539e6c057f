"""push_filter: a condition moves below the node it filters, where fewer rows are kept for it.

Below a `Join`, if it touches one side, and that side's rows come out with nothing but what they have: either side of an
inner join, the left one of a left, semi or anti join. Below an `Aggregate`, if it touches keys alone: it keeps or drops
whole groups. Below a `Window`, if it touches the partition's columns alone: it keeps or drops whole partitions.
Below a `Union`, in all inputs: their columns have the types of the union's.
Below a `Draw`, if it touches input columns alone: the rows it drops then draw nothing, and what the others draw is as
good as before (a value belongs to its row and epoch, and no other row has a say in it). A `Draw` that another view or
another branch reads is closed like any keyed node, so that all its readers see the same values.
Below a `SetOperation`, in both inputs, on the same terms, and if no column is a float: rows that are equal there must
be so to the condition too.
Below a `Temporal`: when a row comes and goes is written in the row, and no other row has a say in it.
Below a `Generate` or an `Apply`, if it touches input columns alone: these copy a row, or add to it.
Never below a `TopK`: which rows are first depends on the rows that are dropped.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.plan.expression import Tree, conjunction, conjuncts, references, renamed
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Generate,
    Join,
    Linear,
    Node,
    SetOperation,
    Temporal,
    Union,
    Window,
)
from holdfast.plan.walk import Kept, projection, readers, rewrite_up


def push_filter(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}

    def change(new: Node, old: Node) -> Node:
        result = _push(new, closed)
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _push(node: Node, closed: set[int]) -> Node:
    if not isinstance(node, Linear) or node.predicate is None or id(node.input) in closed:
        return node
    parts = conjuncts(node.predicate)
    match node.input:
        case Join() as join:
            left = [part for part in parts if join.how != "full" and _touches(part, join.left.columns)]
            right = [part for part in parts if join.how == "inner" and _touches(part, join.right.columns)]
            below: Node = replace(join, left=_filtered(join.left, left), right=_filtered(join.right, right))
            moved = left + right
        case Aggregate() as aggregate:
            moved = [part for part in parts if _touches(part, aggregate.keys)]
            below = replace(aggregate, input=_filtered(aggregate.input, moved))
        case Window() as window:
            moved = [part for part in parts if _touches(part, window.partition)]
            below = replace(window, input=_filtered(window.input, moved))
        case Draw() as draw:
            moved = [part for part in parts if _touches(part, draw.input.columns)]
            below = replace(draw, input=_filtered(draw.input, moved))
        case Temporal() as temporal:
            moved = [part for part in parts if _touches(part, temporal.columns)]
            below = replace(temporal, input=_filtered(temporal.input, moved))
        case Generate() | Apply() as step:
            moved = [part for part in parts if _touches(part, step.input.columns)]
            below = replace(step, input=_filtered(step.input, moved))
        case Union() as union:
            moved = list(parts)
            below = Union(tuple(_filtered(each, _renamed(moved, union, each)) for each in union.inputs))
        case SetOperation() as both:
            moved = [part for part in parts if all(_compares(both, name) for name in references(part))]
            below = replace(
                both,
                left=_filtered(both.left, _renamed(moved, both, both.left)),
                right=_filtered(both.right, _renamed(moved, both, both.right)),
            )
        case _:
            return node
    if not moved:
        return node
    return Linear(below, conjunction([part for part in parts if part not in moved]), node.outputs)


def _touches(part: Tree, columns: tuple[str, ...]) -> bool:
    """Does the condition read some of these columns, and no others?"""
    names = references(part)
    return bool(names) and set(names) <= set(columns)


def _filtered(node: Node, parts: list[Tree]) -> Node:
    return projection(node, node.columns, conjunction(parts)) if parts else node


def _renamed(parts: list[Tree], above: Union | SetOperation, below: Node) -> list[Tree]:
    names = dict(zip(above.columns, below.columns, strict=True))
    return [renamed(part, names) for part in parts]


def _compares(node: SetOperation, name: str) -> bool:
    """Whether a condition on the column asks the same of a row and of one that equals it: -0.0 equals 0.0."""
    return not any(each in node.types[name] for each in ("float", "double"))
