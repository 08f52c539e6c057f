"""push_filter: a condition moves below the node it filters, where fewer rows are kept for it.

Below a `Join`, if it touches one side, and that side's rows come out with nothing but what they have: either side of an
inner join, the left one of a left, semi or anti join. Below an `Aggregate`, if it touches keys alone: it keeps or drops
whole groups. Below a `Window`, if it touches the partition's columns alone: it keeps or drops whole partitions.
Below a `Union`, if the columns it touches have one type in all inputs (known, because they come straight from sources):
a union casts its inputs to their common type, and ``x = '01'`` is another question to an int than to its text.
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

from holdfast.plan.expression import conjunction, conjuncts, plain, quoted, read, references, render, substitute
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Generate,
    Join,
    Linear,
    Node,
    SetOperation,
    Source,
    Temporal,
    TopK,
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
    parts = [render(part) for part in conjuncts(read(node.predicate))]
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
            moved = [part for part in parts if all(_one_type(union, name) for name in references(part))]
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
    return Linear(below, _and([part for part in parts if part not in moved]), node.outputs)


def _touches(part: str, columns: tuple[str, ...]) -> bool:
    """Does the condition read some of these columns, and no others?"""
    names = references(part)
    return bool(names) and set(names) <= set(columns)


def _filtered(node: Node, parts: list[str]) -> Node:
    return projection(node, node.columns, _and(parts)) if parts else node


def _and(parts: list[str]) -> str | None:
    whole = conjunction([read(part) for part in parts])
    return None if whole is None else render(whole)


def _renamed(parts: list[str], union: Union | SetOperation, member: Node) -> list[str]:
    names = {old: quoted(new) for old, new in zip(union.columns, member.columns, strict=True)}
    return [substitute(part, names) for part in parts]


def _compares(node: SetOperation, name: str) -> bool:
    """Whether a condition on the column asks the same of a row and of one that equals it: -0.0 equals 0.0."""
    kind = source_type(node, name)
    return kind is not None and not any(each in kind for each in ("float", "double"))


def _one_type(union: Union, name: str) -> bool:
    place = union.columns.index(name)
    types = {source_type(each, each.columns[place]) for each in union.inputs}
    return len(types) == 1 and None not in types


def source_type(node: Node, name: str) -> str | None:
    """The type of a column that comes straight from a source; None if it is computed."""
    match node:
        case Source():
            return next(field.type for field in node.fields if field.name == name)
        case Linear():
            inner = plain(next(output.sql for output in node.outputs if output.name == name))
            return None if inner is None else source_type(node.input, inner)
        case Generate():
            return source_type(node.input, name) if name in node.input.columns else None
        case Apply():
            returns = {call.name: call.function.returns for call in node.calls}
            return returns[name] if name in returns else source_type(node.input, name)
        case Union():
            return source_type(node.inputs[0], name) if _one_type(node, name) else None
        case SetOperation():
            place = node.columns.index(name)
            types = {source_type(each, each.columns[place]) for each in (node.left, node.right)}
            return types.pop() if len(types) == 1 else None
        case Join():
            return source_type(node.left if name in node.left.columns else node.right, name)
        case Aggregate():
            return source_type(node.input, name) if name in node.keys else None
        case TopK() | Temporal():
            return source_type(node.input, name)
        case Window():
            return source_type(node.input, name) if name in node.input.columns else None
        case Draw():
            drawn = {draw.name: draw.type for draw in node.draws}
            return drawn[name] if name in drawn else source_type(node.input, name)
