"""prune_columns: columns that nobody reads are dropped as early as possible, and so are aggregates.

What a keyed node receives is what it keeps, so a column that is dropped below it is state that is not kept. First the
needs of every node are collected, from the top down; a node that several read must satisfy all of them, and stays one
node. Then the plan is built anew, from the bottom up, each node with the columns that are needed, in their old order.

A `Draw` remembers whole rows, so it is pruned like a keyed node; a draw that nobody reads is not made, and a `Draw`
without draws is its input. Rows that differ in pruned columns alone become copies of one row, and each copy still draws
for itself.

A `Generate` makes rows, whoever reads its columns: what it reads is needed, and it stays. An `Apply` without calls is
its input.

A `SetOperation` compares whole rows, so it needs all its columns. A `Window` without calls is its input.

A `TopK` or a `Window` breaks ties by the whole row, so pruning below it may settle ties another way: any way is right,
as long as it is always the same one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from holdfast.plan.expression import references
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
    WindowCall,
)
from holdfast.plan.walk import Kept, projection, reachable


def prune_columns(node: Node, kept: Kept) -> Node:
    nodes = reachable(node, kept)
    needs: dict[int, set[str]] = defaultdict(set)
    needs[id(node)] |= set(node.columns)
    for each in reversed(nodes):  # those that read a node come before it
        if id(each) not in kept:
            _collect(each, needs)
    done: dict[int, Node] = {}
    for each in nodes:
        done[id(each)] = each if id(each) in kept else _rebuild(each, needs[id(each)], needs, done)
    return done[id(node)]


def _collect(node: Node, needs: dict[int, set[str]]) -> None:
    """Add what ``node`` needs of its inputs, given what is needed of it."""
    wanted = needs[id(node)]
    match node:
        case Linear():
            trees = [output.expression for output in node.outputs if output.name in wanted]
            needs[id(node.input)] |= set(references(node.predicate, *trees))
        case Generate():
            needs[id(node.input)] |= _generated_from(node, wanted)
        case Apply():
            needs[id(node.input)] |= _applied_to(node, wanted)
        case Union():
            places = [place for place, name in enumerate(node.columns) if name in wanted]
            for each in node.inputs:
                needs[id(each)] |= {each.columns[place] for place in places}
        case SetOperation():
            needs[id(node.left)] |= set(node.left.columns)
            needs[id(node.right)] |= set(node.right.columns)
        case Join():
            for side, names in zip((node.left, node.right), _joined(node, wanted), strict=True):
                needs[id(side)] |= names
        case Aggregate():
            arguments = {name for call in node.calls if call.name in wanted for name in call.arguments}
            needs[id(node.input)] |= set(node.keys) | arguments
        case TopK():
            needs[id(node.input)] |= wanted | {each.column for each in node.order}
        case Window():
            needs[id(node.input)] |= _seen(node, wanted)
        case Draw():
            needs[id(node.input)] |= _drawn_from(node, wanted)
        case Temporal():
            needs[id(node.input)] |= wanted | set(node.moments)
        case Source():
            pass


def _rebuild(node: Node, wanted: set[str], needs: dict[int, set[str]], done: dict[int, Node]) -> Node:
    """``node`` with the columns that are ``wanted``, over the inputs that are ``done``."""
    match node:
        case Source():
            return node
        case Linear():
            outputs = tuple(output for output in node.outputs if output.name in wanted)
            below = done[id(node.input)]
            if below is node.input and len(outputs) == len(node.outputs):
                return node
            return Linear(below, node.predicate, outputs)
        case Generate():
            below = _only(done[id(node.input)], _generated_from(node, wanted))
            return node if below is node.input else replace(node, input=below)
        case Apply():
            applied = tuple(call for call in node.calls if call.name in wanted)
            below = _only(done[id(node.input)], _applied_to(node, wanted))
            if not applied:
                return below
            return node if below is node.input and len(applied) == len(node.calls) else Apply(below, applied)
        case Union():
            places = [place for place, name in enumerate(node.columns) if name in wanted]
            inputs = tuple(_exactly(done[id(each)], [each.columns[place] for place in places]) for each in node.inputs)
            return node if all(new is old for new, old in zip(inputs, node.inputs, strict=True)) else Union(inputs)
        case SetOperation():
            left = _exactly(done[id(node.left)], list(node.left.columns))
            right = _exactly(done[id(node.right)], list(node.right.columns))
            return node if left is node.left and right is node.right else replace(node, left=left, right=right)
        case Join():
            of_left, of_right = _joined(node, wanted)
            left, right = _only(done[id(node.left)], of_left), _only(done[id(node.right)], of_right)
            return node if left is node.left and right is node.right else replace(node, left=left, right=right)
        case Aggregate():
            calls = tuple(call for call in node.calls if call.name in wanted)
            arguments = {name for call in calls for name in call.arguments}
            below = _only(done[id(node.input)], set(node.keys) | arguments)
            if below is node.input and len(calls) == len(node.calls):
                return node
            return replace(node, input=below, calls=calls)
        case TopK():
            below = _only(done[id(node.input)], wanted | {each.column for each in node.order})
            return node if below is node.input else replace(node, input=below)
        case Window():
            functions = tuple(_needed(node, wanted))
            below = _only(done[id(node.input)], _seen(node, wanted))
            if not functions:
                return below
            if below is node.input and len(functions) == len(node.calls):
                return node
            return replace(node, input=below, calls=functions)
        case Draw():
            draws = tuple(draw for draw in node.draws if draw.name in wanted)
            below = _only(done[id(node.input)], _drawn_from(node, wanted))
            if not draws:
                return below
            return node if below is node.input and len(draws) == len(node.draws) else Draw(below, draws)
        case Temporal():
            below = _only(done[id(node.input)], wanted | set(node.moments))
            return node if below is node.input else replace(node, input=below)


def _joined(node: Join, wanted: set[str]) -> tuple[set[str], set[str]]:
    """The columns of each side of a `Join` that are wanted. Of the right side of a semi or anti join, the key alone."""
    left, right = set(node.left_keys), set(node.right_keys)
    left |= wanted & set(node.left.columns)
    if node.how not in ("semi", "anti"):
        right |= wanted & set(node.right.columns)
    return left, right


def _seen(node: Window, wanted: set[str]) -> set[str]:
    """The input columns of a `Window` that are wanted, by those that read it or by a call that is."""
    calls = _needed(node, wanted)
    own = {*node.partition, *(each.column for each in node.order)} if calls else set()
    return (wanted & set(node.input.columns)) | own | {name for call in calls for name in call.reads}


def _needed(node: Window, wanted: set[str]) -> list[WindowCall]:
    """The calls of a `Window` that are wanted, and the one that says which rows it gives."""
    decisive = "" if node.first is None else node.first.call
    return [call for call in node.calls if call.name in wanted or call.name == decisive]


def _drawn_from(node: Draw, wanted: set[str]) -> set[str]:
    """The input columns of a `Draw` that are wanted, by those that read it or by a draw that is."""
    arguments = {name for draw in node.draws if draw.name in wanted for name in draw.arguments}
    return (wanted & set(node.input.columns)) | arguments


def _generated_from(node: Generate, wanted: set[str]) -> set[str]:
    """The input columns of a `Generate` that are wanted, by those that read it or by the generator."""
    return (wanted & set(node.input.columns)) | set(references(*node.arguments))


def _applied_to(node: Apply, wanted: set[str]) -> set[str]:
    """The input columns of an `Apply` that are wanted, by those that read it or by a call that is."""
    arguments = {name for call in node.calls if call.name in wanted for name in call.arguments}
    return (wanted & set(node.input.columns)) | arguments


def _only(node: Node, wanted: set[str]) -> Node:
    """``node`` without the columns that are not wanted."""
    return _exactly(node, [name for name in node.columns if name in wanted])


def _exactly(node: Node, names: list[str]) -> Node:
    return node if node.columns == tuple(names) else projection(node, tuple(names))
