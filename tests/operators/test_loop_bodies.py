"""Loops whose bodies are random plans of all operators, cut off after some rounds, against a plain interpreter.

What a body means is said by `plan.interpreter`: round by round, from nothing or from a start. It need not have a
fixpoint: rounds are counted. Inputs change at random, deletions included, NULLs among their values. Every body is run
twice, with other splits, partitions and merges: the traces of both must hold the same rows at the same rounds. Loops in
the body of a loop, two and three deep, are compared in the same way.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.join import Join
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.loops.building import Recursion, loop_of
from holdfast.operators.set_operation import SetOperation
from holdfast.operators.topk import TopK
from holdfast.operators.window import First, Window
from holdfast.operators.window_functions import WindowCall
from holdfast.plan.expression import condition
from holdfast.plan.nodes import Linear, Named, Node, Order, Union
from holdfast.trace.hashing import weak_bits
from operators.loops import Bag, Case, leaf
from operators.running import Runner, added, bag
from operators.test_loop import SLOT, spec_of
from plan import interpreter

STARTS, EDGES = leaf("starts", "a", "b"), leaf("edges", "a", "b")
X = LoopLeaf("x", STARTS.fields)


def two(node: Node, *columns: str) -> Linear:
    """Two columns of a node, as a and b."""
    return Linear(node, None, tuple(Named(name, node.column(own)) for name, own in zip("ab", columns, strict=True)))


def grown(dice: random.Random, depth: int, nested: bool = False) -> Node:
    """A random plan over the variable and the inputs, with the columns a and b; ``nested``: loops are among it."""
    loops = ["loop"] * 6 * nested
    if depth == 0:
        return dice.choice([X, X, EDGES, STARTS])
    one = grown(dice, depth - 1, nested)
    order = (Order("b", dice.random() < 0.5, dice.random() < 0.5), Order("a", False, True))
    kinds = ["join"] * 4 + ["group", "group", "one", "union", "distinct", "set", "top", "window", "where"]
    match dice.choice(kinds + loops):
        case "join":
            other = grown(dice, dice.randrange(depth))
            right = Linear(other, None, (Named("c", other.column("a")), Named("d", other.column("b"))))
            how: Any = dice.choice(["inner", "inner", "left", "full", "semi", "anti"])
            keys = dice.choice([(("a",), ("c",)), (("b",), ("c",)), (("a", "b"), ("c", "d")), ((), ())])
            joined = Join(one, right, *keys, how, dice.choice([(), (True,) * len(keys[0])]))
            return two(joined, "a", "b") if how in ("semi", "anti") else two(joined, *dice.sample("abcd", 2))
        case "group":
            function = dice.choice(["count", "sum", "min", "max"])
            call = Call("n", function, ("b",), "bigint", distinct=function == "count" and dice.random() < 0.5)
            return two(Aggregate(one, ("a",), (call,)), "a", "n")
        case "one":
            calls = (Call("n", "count", ("a",), "bigint"), Call("m", "max", ("b",), "bigint"))
            return two(Aggregate(one, (), calls), "n", "m")
        case "union":
            return Union((one, grown(dice, dice.randrange(depth))))
        case "distinct":
            return Aggregate(one, ("a", "b"), ())
        case "set":
            other = grown(dice, dice.randrange(depth))
            return SetOperation(one, other, dice.choice(["intersect", "except"]), dice.random() < 0.5)
        case "loop":
            own = LoopLeaf(f"own {depth}", X.fields)
            others = [own, own, one, grown(dice, dice.randrange(depth), nested)]
            step = Linear(dice.choice(others), None, (Named("c", own.column("a")), Named("d", own.column("b"))))
            met = two(Join(own, step, ("b",), ("c",)), *dice.sample("abcd", 2))
            inner: Node = Aggregate(Union((one, met)), ("a", "b"), ())
            if dice.random() < 0.3:
                inner = two(Aggregate(inner, ("a",), (Call("n", "min", ("b",), "bigint"),)), "a", "n")
            start = dice.choice([None, one])
            return loop_of([Recursion(own, inner, start)], 0, max_rounds=100, rounds=dice.choice([2, 3, 5]))
        case "top":
            return TopK(one, order, dice.randrange(1, 4), dice.randrange(2))
        case "window":
            call = WindowCall("n", dice.choice(["row_number", "rank"]), "int")
            first = dice.choice([None, First("n", 2)])
            return two(Window(one, ("a",), order, (call,), first), "a", "b")
    return Linear(one, condition("<", one.column("a"), one.column("b")), two(one, "a", "b").outputs)


def meant(body: Node, starts: Bag, edges: Bag, rounds: int, begins: bool) -> Bag:
    """The variable after so many rounds."""
    now: list[Any] = list(starts.elements()) if begins else []
    given = {"starts": list(starts.elements()), "edges": list(edges.elements())}
    for _ in range(rounds):
        now = interpreter.run(body, {**given, "x": now})
    return Counter(now)


def drawn_loop(dice: random.Random, nested: bool) -> tuple[Case, Node, int, bool]:
    """A loop, its body, after how many rounds it is cut off, and whether it begins with the rows of `STARTS`."""
    while True:
        body: Node = Aggregate(grown(dice, dice.choice([1, 2, 3]), nested), ("a", "b"), ())
        rounds, begins = dice.randrange(1, 6), dice.random() < 0.5
        loop = loop_of([Recursion(X, body, STARTS if begins else None)], 0, max_rounds=100, rounds=rounds)
        case = Case(loop, lambda *_: Counter())
        if not nested or any(isinstance(each.spec, LoopSpec) for each in spec_of(case).body.operators):
            return case, body, rounds, begins


def drawn_changes(dice: random.Random, there: dict[str, Bag]) -> dict[str, Bag]:
    """Some rows of the two tables come, and some go."""
    values = [None, 0, 1, 2, 3]
    changes: dict[str, Bag] = {}
    for name, rows in there.items():
        come = Counter((dice.choice(values), dice.choice(values)) for _ in range(dice.randrange(4)))
        gone = Counter({row: dice.randint(1, count) for row, count in rows.items() if dice.random() < 0.4})
        changes[name] = added(come, gone, -1)
    return changes


def compare(seed: int, directory: Path, nested: bool = False) -> None:
    dice = random.Random(f"{'nested' if nested else 'body'} {seed}")
    case, body, rounds, begins = drawn_loop(dice, nested)
    spec, inputs_of = spec_of(case), case.loop.inputs
    names = [getattr(each, "name", "") for each in inputs_of]
    with weak_bits(dice.choice([64, 2])):
        runners = [Runner(spec, case.types, directory / str(n), random.Random(n), slot=SLOT) for n in range(2)]
        there: dict[str, Bag] = {"starts": Counter(), "edges": Counter()}
        before: Bag = Counter()
        for epoch in range(5):
            changes = drawn_changes(dice, there)
            there = {name: added(rows, changes[name]) for name, rows in there.items()}
            inputs = [change_of(node, there, changes, epoch == 0) for node in inputs_of]
            after = bag(list(meant(body, there["starts"], there["edges"], rounds, begins).items()))
            for runner in runners:
                given = runner.epoch(*([*each.items()] for each in inputs))
                assert given == added(after, before, -1), f"seed {seed}, {rounds} rounds, {names}: {body}"
            before = after
        for suffix in spec.layouts():
            one, other = (runner.state(suffix) for runner in runners)
            assert one == other, f"seed {seed}: {suffix}"


def change_of(node: Node, there: dict[str, Bag], changes: dict[str, Bag], first: bool) -> Bag:
    """The change of an input of the loop, which may be any plan over the two tables: in the first epoch, all of it."""
    if first:
        return Counter(interpreter.run(node, {name: list(rows.elements()) for name, rows in there.items()}))
    old = {name: list(added(rows, changes[name], -1).elements()) for name, rows in there.items()}
    new = {name: list(rows.elements()) for name, rows in there.items()}
    return added(Counter(interpreter.run(node, new)), Counter(interpreter.run(node, old)), -1)


@pytest.mark.parametrize("seed", range(16))
def test_a_body_of_any_operators_is_what_the_interpreter_says_round_by_round(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16, 1016))
def test_many_bodies_of_any_operators_are_what_the_interpreter_says(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_loops_in_the_body_of_a_loop_are_what_the_interpreter_says_round_by_round(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path, nested=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 1008))
def test_many_loops_in_the_body_of_a_loop_are_what_the_interpreter_says(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path, nested=True)
