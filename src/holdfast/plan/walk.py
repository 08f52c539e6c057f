"""Walking plans. Plans are graphs: a node that two others read is one object, and is visited (and rewritten) once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Drawn,
    Function,
    Generate,
    Join,
    Linear,
    Named,
    Node,
    Outside,
    SetOperation,
    Source,
    Temporal,
    TopK,
    Union,
    UserFunction,
    Window,
    inputs,
)

Called = TypeVar("Called", Function, Outside)
Kept = frozenset[int]  # the ids of nodes that must stay as they are
Rule = Callable[[Node, Kept], Node]


def reachable(node: Node, closed: Kept = frozenset()) -> list[Node]:
    """All nodes of a plan, each once, inputs before those that read them. Below ``closed`` nodes it does not look."""
    found: dict[int, Node] = {}
    waiting = [(node, False)]  # a stack of its own: views on views make plans deeper than Python's
    while waiting:
        each, ready = waiting.pop()
        if id(each) in found:
            continue
        if ready or id(each) in closed:
            found[id(each)] = each
        else:
            waiting.append((each, True))
            waiting += [(child, False) for child in reversed(inputs(each))]
    return list(found.values())


def readers(node: Node) -> Counter[int]:
    """How many nodes of the plan read each node (by id)."""
    return Counter(id(child) for each in reachable(node) for child in inputs(each))


def with_inputs(node: Node, children: tuple[Node, ...]) -> Node:
    """``node`` over other inputs; ``node`` itself if they are the same objects."""
    if all(new is old for new, old in zip(children, inputs(node), strict=True)):
        return node
    match node:
        case Source():
            return node
        case Linear() | Generate() | Apply() | Aggregate() | TopK() | Window() | Draw() | Temporal():
            return replace(node, input=children[0])
        case Union():
            return replace(node, inputs=children)
        case Join() | SetOperation():
            return replace(node, left=children[0], right=children[1])


def rewrite_up(node: Node, change: Callable[[Node, Node], Node], kept: Kept) -> Node:
    """Apply ``change(new, old)`` to every node, inputs first: ``new`` is the node ``old`` over its changed inputs.

    Nodes that are kept are passed over, with all below them.
    """
    done: dict[int, Node] = {}
    for each in reachable(node, kept):
        if id(each) in kept:
            done[id(each)] = each
        else:
            done[id(each)] = change(with_inputs(each, tuple(done[id(child)] for child in inputs(each))), each)
    return done[id(node)]


def with_functions(node: Node, functions: Mapping[str, UserFunction]) -> Node:
    """The plan with the users' functions it calls as they are declared now."""

    def change(new: Node, _: Node) -> Node:
        if isinstance(new, Apply):
            calls = tuple(replace(each, function=_now(each.function, functions)) for each in new.calls)
            return new if calls == new.calls else Apply(new.input, calls)
        if isinstance(new, Draw):
            draws = tuple(_redrawn(each, functions) for each in new.draws)
            return new if draws == new.draws else Draw(new.input, draws)
        return new

    return rewrite_up(node, change, frozenset())


def _redrawn(drawn: Drawn, functions: Mapping[str, UserFunction]) -> Drawn:
    if drawn.outside is None:
        return drawn
    now = _now(drawn.outside, functions)
    return replace(drawn, outside=now, type=now.returns)


def _now(function: Called, functions: Mapping[str, UserFunction]) -> Called:
    """The function of that name, if it is still one of the same kind."""
    found = functions.get(function.name)
    return found if isinstance(found, type(function)) else function


def projection(node: Node, names: tuple[str, ...], predicate: str | None = None) -> Linear:
    """The columns ``names`` of ``node``."""
    return Linear(node, predicate, tuple(Named(name, quoted(name)) for name in names))
