"""Loops over graphs, as plans, each with the plain Python that says what it means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.join import Join
from holdfast.operators.loop import Loop, LoopVariable
from holdfast.operators.loops.body import LoopLeaf, input_name, variable_name
from holdfast.plan.expression import Literal, Tree, condition
from holdfast.plan.nodes import Field, Linear, Named, Node, Source, Union

Row = tuple[Any, ...]
Bag = Counter[Row]


@dataclass(frozen=True)
class Case:
    """A loop, and what its rows are, given the bags of its inputs."""

    loop: Loop
    meant: Callable[..., Bag]

    @property
    def types(self) -> list[list[pa.DataType]]:
        return [[pa.int64()] * len(each.fields) for each in self.loop.inputs]


def leaf(name: str, *columns: str) -> Source:
    kind = LoopLeaf if name.startswith(("input", "variable")) else Source
    return kind(name, tuple(Field(column, "bigint") for column in columns))


def select(node: Node, *columns: str, predicate: Tree | None = None, **renamed: str) -> Linear:
    """Columns of ``node``: as they are, or under other names."""
    outputs = [Named(column, node.column(column)) for column in columns]
    outputs += [Named(new, node.column(old)) for new, old in renamed.items()]
    return Linear(node, predicate, tuple(outputs))


def whole(value: int) -> Literal:
    return Literal(value, "bigint")


def distinct(node: Node) -> Aggregate:
    return Aggregate(node, node.columns, ())


def fixpoint(step: Callable[[Bag], Bag], start: Bag | None = None, rounds: int = 2000) -> Bag:
    """What is left when ``step`` changes nothing any more."""
    now = Counter() if start is None else start
    for _ in range(rounds):
        following = +step(now)
        if following == now:
            return now
        now = following
    return now


def times(*bags: Bag) -> Iterable[tuple[tuple[Row, ...], int]]:
    """All rows of several bags side by side, and how often each combination is there."""
    if not bags:
        yield (), 1
        return
    for rest, copies in times(*bags[1:]):
        for row, count in bags[0].items():
            yield (row, *rest), count * copies


def once(bag: Bag) -> Bag:
    return Counter(dict.fromkeys(+bag, 1))


# -- reachability: Z = distinct(starts ⊎ step(Z)) ---------------------------------------------------------------------

EDGES = leaf("edges", "a", "b")
STARTS = leaf("starts", "n")


def reach() -> Case:
    starts, edges, z = leaf(input_name(0), "n"), leaf(input_name(1), "a", "b"), leaf(variable_name(0), "m")
    step = select(Join(z, edges, ("m",), ("a",)), n="b")
    body = distinct(Union((starts, step)))

    def meant(start: Bag, edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            found = Counter(start)
            for (z, (a, b)), copies in times(now, edge):
                if z[0] == a:
                    found[(b,)] += copies
            return once(found)

        return fixpoint(again)

    return Case(Loop((STARTS, EDGES), (LoopVariable(body),), 0, 2000), meant)


# -- all pairs, not linear: P = distinct(edges ⊎ P ⋈ P) ---------------------------------------------------------------


def closure() -> Case:
    edges, p, q = leaf(input_name(0), "a", "b"), leaf(variable_name(0), "a", "b"), leaf(variable_name(0), "a", "b")
    right = select(q, c="a", d="b")
    body = distinct(Union((edges, select(Join(p, right, ("b",), ("c",)), a="a", b="d"))))

    def meant(edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            found = Counter(edge)
            for ((a, b), (c, d)), copies in times(now, now):
                if b == c:
                    found[(a, d)] += copies
            return once(found)

        return fixpoint(again)

    return Case(Loop((EDGES,), (LoopVariable(body),), 0, 2000), meant)


# -- components by the least label, from a start: L = min over itself and its neighbours ------------------------------


def components() -> Case:
    edges, labels = leaf(input_name(1), "a", "b"), leaf(variable_name(0), "n", "low")
    both = Union((edges, select(edges, a="b", b="a")))
    told = select(Join(labels, both, ("n",), ("a",)), n="b", low="low")
    body = Aggregate(Union((labels, told)), ("n",), (Call("low", "min", ("low",), "bigint"),))

    def meant(node: Bag, edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            least: dict[int, int] = {}
            for (n, low), _ in now.items():
                for other in [n, *(b for a, b in edge if a == n), *(a for a, b in edge if b == n)]:
                    least[other] = min(least.get(other, low), low)
            return Counter({(n, low): 1 for n, low in least.items()})

        return fixpoint(again, +Counter(node))

    return Case(Loop((leaf("nodes", "n", "low"), EDGES), (LoopVariable(body, 0),), 0, 2000), meant)


# -- components as SQL says it: Z = distinct(nodes ⊎ min over neighbours) ---------------------------------------------


def labels() -> Case:
    nodes, edges, z = leaf(input_name(0), "n", "low"), leaf(input_name(1), "a", "b"), leaf(variable_name(0), "m", "low")
    told = select(Join(z, edges, ("m",), ("a",)), n="b", low="low")
    body = distinct(Union((nodes, Aggregate(told, ("n",), (Call("low", "min", ("low",), "bigint"),)))))

    def meant(node: Bag, edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            least: dict[int, int] = {}
            for (m, low), (a, b) in ((z, e) for z in now for e in edge):
                if m == a:
                    least[b] = min(least.get(b, low), low)
            return once(Counter(node) + Counter((n, low) for n, low in least.items()))

        return fixpoint(again)

    return Case(Loop((leaf("nodes", "n", "low"), EDGES), (LoopVariable(body),), 0, 2000), meant)


# -- mutual: nodes at an even and at an odd distance ------------------------------------------------------------------


def parity() -> Case:
    starts, edges = leaf(input_name(0), "n"), leaf(input_name(1), "a", "b")
    even, odd = leaf(variable_name(0), "m"), leaf(variable_name(1), "m")
    from_odd = select(Join(odd, edges, ("m",), ("a",)), n="b")
    from_even = select(Join(even, edges, ("m",), ("a",)), n="b")
    variables = (LoopVariable(distinct(Union((starts, from_odd)))), LoopVariable(distinct(from_even)))

    def meant(start: Bag, edge: Bag) -> Bag:
        evens: set[int] = set()
        odds: set[int] = set()
        while True:
            more = {n for (n,) in start} | {b for a, b in edge if a in odds}
            less = {b for a, b in edge if a in evens}
            if (more, less) == (evens, odds):
                return Counter({(n,): 1 for n in odds})
            evens, odds = more, less

    return Case(Loop((STARTS, EDGES), variables, 1, 2000), meant)


# -- what is not monotone: nodes that can be reached without those that two reached nodes point at -------------------


def walks() -> Case:
    """Bags: how many walks of at most five steps lead to each node (rounds are cut off)."""
    starts, edges, z = leaf(input_name(0), "n"), leaf(input_name(1), "a", "b"), leaf(variable_name(0), "m")
    body = Union((starts, select(Join(z, edges, ("m",), ("a",)), n="b")))

    def meant(start: Bag, edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            found = Counter(start)
            for (z, (a, b)), copies in times(now, edge):
                if z[0] == a:
                    found[(b,)] += copies
            return found

        return fixpoint(again, rounds=6)

    return Case(Loop((STARTS, EDGES), (LoopVariable(body),), 0, 2000, rounds=6), meant)


def game() -> Case:
    """Positions with a move to a position that is not won: not monotone, so cut off after seven rounds."""
    edges, won = leaf(input_name(0), "a", "b"), leaf(variable_name(0), "w")
    body = distinct(select(Join(edges, won, ("b",), ("w",), "anti"), w="a"))

    def meant(edge: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            return Counter({(a,): 1 for a, b in edge if (b,) not in now})

        return fixpoint(again, rounds=7)

    return Case(Loop((EDGES,), (LoopVariable(body),), 0, 2000, rounds=7), meant)


def counted() -> Case:
    """A global aggregate in the loop: numbers that grow by how many there are, up to fifty."""
    starts, z = leaf(input_name(0), "n"), leaf(variable_name(0), "m")
    many = Aggregate(z, (), (Call("many", "count", (), "bigint"),))
    below = condition("<", many.column("many"), whole(50))
    body = distinct(Union((starts, select(many, predicate=below, n="many"))))

    def meant(start: Bag) -> Bag:
        def again(now: Bag) -> Bag:
            many = sum(now.values())
            return once(Counter(start) + Counter([(many,)] if many < 50 else []))

        return fixpoint(again, rounds=9)

    return Case(Loop((STARTS,), (LoopVariable(body),), 0, 2000, rounds=9), meant)


def diverging() -> Case:
    """Numbers below five come again in every round."""
    starts, z = leaf(input_name(0), "n"), leaf(variable_name(0), "m")
    again = select(z, predicate=condition("<", z.column("m"), whole(5)), n="m")
    return Case(Loop((STARTS,), (LoopVariable(Union((starts, again))),), 0, 20), lambda start: start)


LOOPS = {each.__name__: each for each in (reach, closure, components, labels, parity, walks, game, counted)}
