"""From plans to a loop: the parts that do not depend on a variable become inputs, the rest is checked.

A body is rewritten like any plan, and then cut: every maximal part without a variable becomes an input of the loop. An
input is computed outside the loop, so it may be anything that a view may be, and a small change of it is a small change
of round 0.

The rest of the body runs in rounds, in tasks, by operators that are functions of their input alone. So it may not read
the clock, draw values or call outside functions, and all of its expressions must be native.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import Unsupported
from holdfast.operators.join import Join
from holdfast.operators.linear_step import native_step
from holdfast.operators.loop import Loop, LoopVariable
from holdfast.operators.loops.body import LoopLeaf, input_name, variable_name
from holdfast.operators.rewrites import IN_LOOPS, rewrite
from holdfast.plan.expression import SparkExpression, Tree, readable
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import KeyedNode, Linear, Named, Node, Step, Union
from holdfast.plan.walk import reachable


@dataclass(frozen=True)
class Recursion:
    """A variable while its loop is built. ``leaf`` stands for it in the plans, ``body`` computes it in the next round,
    ``start`` is its content at round 0 (None: empty)."""

    leaf: LoopLeaf
    body: Node
    start: Node | None = None


def loop_of(
    variables: Sequence[Recursion],
    result: int,
    *,
    max_rounds: int,
    max_rows: int | None = None,
    rounds: int | None = None,
    subject: str = "",
) -> Loop:
    """Build the loop of these variables. Raises Unsupported if a part of a body cannot run in rounds; the message
    begins with ``subject``."""
    cutting = _Cutting({each.leaf.name: index for index, each in enumerate(variables)}, subject)
    made = []
    for each in variables:
        start = None if each.start is None else cutting.as_input(each.start)
        made.append(LoopVariable(cutting.cut(rewrite(each.body, rules=IN_LOOPS)), start))
    return Loop(tuple(cutting.inputs), tuple(made), result, max_rounds, rounds, max_rows)


class _Cutting:
    """Collects the inputs of a loop while its bodies are cut. ``places``: name of a variable's leaf → the variable's
    index."""

    def __init__(self, places: Mapping[str, int], subject: str) -> None:
        self._places, self._subject = places, subject
        self.inputs: list[Node] = []
        self._known: dict[str, int] = {}

    def as_input(self, node: Node) -> int:
        """The index of the input with these rows; adds it if it is new."""
        meaning = fingerprint(node)
        if meaning not in self._known:
            self._known[meaning] = len(self.inputs)
            self.inputs.append(node)
        return self._known[meaning]

    def cut(self, body: Node) -> Node:
        """The body over leaves for variables and inputs. Raises Unsupported for a node that cannot run in rounds."""
        depends: dict[int, bool] = {}
        done: dict[int, Node] = {}
        for node in reachable(body):
            below = [depends[id(child)] for child in node.inputs]
            own = isinstance(node, LoopLeaf) and node.name in self._places
            depends[id(node)] = own or any(below)
            if own:
                assert isinstance(node, LoopLeaf)
                done[id(node)] = LoopLeaf(variable_name(self._places[node.name]), node.fields)
            elif any(below):
                self._check(node)
                inputs = [done[id(child)] if id(child) in done else self._leaf(child) for child in node.inputs]
                done[id(node)] = node.with_inputs(inputs)
        return done[id(body)] if id(body) in done else self._leaf(body)

    def _leaf(self, node: Node) -> Node:
        return LoopLeaf(input_name(self.as_input(node)), node.fields)

    def _check(self, node: Node) -> None:
        """Raise Unsupported if a node that depends on a variable cannot run in rounds."""
        if isinstance(node, Step):
            if native_step(node, in_loop=True) is None:
                advice = "compute it before the loop, or behind it"
                raise self._refusal(_foreign(node), "which Holdfast leaves to Spark to compute", advice)
        elif isinstance(node, KeyedNode):
            for part in node.parts:
                if part.timed:
                    raise self._refusal(part.title, "which looks at the clock", "do so before the loop, or behind it")
                if part.draws:
                    drawn = ", ".join(part.draws)
                    raise self._refusal(drawn, "whose values are drawn", "do so before the loop, or behind it")

    def _refusal(self, construct: str, why: str, advice: str) -> Unsupported:
        begin = f"{self._subject}: " if self._subject else ""
        return Unsupported(f"{begin}{construct}, {why}, is not supported inside a loop: {advice}", construct=construct)


def _foreign(step: Step) -> str:
    """The text of the innermost expression of the step that tasks cannot compute, for people."""
    found: Tree | None = None
    waiting = list(step.expressions)
    while waiting:
        each = waiting.pop(0)
        if native_step(Linear(step.input, None, (Named("value", each),)), in_loop=True) is None:
            written = each.in_operations() if isinstance(each, SparkExpression) else None
            found, waiting = each, list(each.parts) if written is None else [written]
    if found is None:
        return "an expression"
    lacking = found.lacking if isinstance(found, SparkExpression) and found.lacking != found.label else ""
    return f"{lacking} in {readable(found)}" if lacking else readable(found)


def is_linear(body: Node, leaves: Sequence[LoopLeaf]) -> bool:
    """Whether every row of the body is derived from at most one row of a variable, whatever other rows there are."""
    names = {each.name for each in leaves}
    depends: dict[int, bool] = {}
    for node in reachable(body):
        below = [depends[id(child)] for child in node.inputs]
        depends[id(node)] = any(below) or (isinstance(node, LoopLeaf) and node.name in names)
        if not any(below) or isinstance(node, Step | Union):
            continue
        if not isinstance(node, Join) or (below[1] and (below[0] or node.how != "inner")) or node.how == "full":
            return False
    return True
