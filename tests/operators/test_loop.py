"""Loops, run as operators: random changes of random graphs, against a plain fixpoint after every epoch.

Splits, partitions, merges and weak hashes are drawn (`running`). Graphs are small and dense in cycles, self loops and
duplicates, so that deletions unravel what was derived in many ways.
"""

from __future__ import annotations

import gc
import pickle
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import EvaluationError, LoopDiverged
from holdfast.foundation import failpoints
from holdfast.operators.loop import Loop, LoopSpec, LoopVariable
from holdfast.operators.loops.body import input_name, variable_name
from holdfast.plan.dataflow import build
from holdfast.plan.expression import Operation, condition
from holdfast.plan.nodes import Linear, Named, Union
from holdfast.trace.hashing import weak_bits
from operators.loops import LOOPS, Bag, Case, diverging, leaf, reach, select, whole
from operators.running import Runner, added, bag

SLOT = 2**56
"""All rows of a loop lie in the first slot, so partitions are cut between slots."""


def spec_of(case: Case) -> LoopSpec:
    flow = build({"v": case.loop}, {}, lambda _: True)
    (operator,) = (each for each in flow.operators.values() if each.node is case.loop and each.kind == "loop")
    return case.loop.compiled(operator)


def drawn_rows(name: str, width: int, dice: random.Random, nodes: int) -> Counter[Any]:
    """Rows of an input: edges, starts, or nodes with their own number as a label."""
    if name == "nodes":
        return Counter({(node, node): 1 for node in range(nodes) if dice.random() < 0.5})
    return Counter(tuple(dice.randrange(nodes) for _ in range(width)) for _ in range(dice.randrange(5)))


def change(name: str, width: int, there: Bag, dice: random.Random, nodes: int) -> Bag:
    """Some rows come and some go; a node with a label is there at most once."""
    come = drawn_rows(name, width, dice, nodes)
    if name == "nodes":
        come -= there
    gone = Counter({row: dice.randint(1, copies) for row, copies in there.items() if dice.random() < 0.3})
    return added(come, gone, -1)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("bits", [64, 2], ids=["strong hash", "weak hash"])
def test_its_change_is_the_difference_of_its_fixpoints(name: str, bits: int, tmp_path: Path) -> None:
    compare(name, bits, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("bits", [64, 2], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize("seed", range(1, 31))
def test_its_change_is_the_difference_of_many_fixpoints(name: str, bits: int, seed: int, tmp_path: Path) -> None:
    compare(name, bits, seed, tmp_path)


def compare(name: str, bits: int, seed: int, tmp_path: Path) -> None:
    """Run a loop over random changes, and compare each change of its rows with that of its fixpoint."""
    case = LOOPS[name]()
    spec = spec_of(case)
    assert pickle.loads(pickle.dumps(spec)) == spec
    dice = random.Random(f"{name} {bits} {seed}")
    inputs = [(each.name, len(each.fields)) for each in case.loop.inputs]
    nodes = dice.choice([3, 5, 8])
    with weak_bits(bits):
        runner = Runner(spec, case.types, tmp_path, dice, slot=SLOT)
        there: list[Bag] = [Counter() for _ in inputs]
        before: Bag = Counter()
        for _ in range(8):
            changes = [change(*each, bag, dice, nodes) for each, bag in zip(inputs, there, strict=True)]
            there = [added(one, other) for one, other in zip(there, changes, strict=True)]
            after = case.meant(*there)
            given = runner.epoch(*([*each.items()] for each in changes))
            assert given == added(bag(list(after.items())), before, -1)
            before = bag(list(after.items()))


def test_a_chain_of_a_thousand_rounds_follows_what_changes_in_its_middle(tmp_path: Path) -> None:
    runner = Runner(spec_of(reach()), reach().types, tmp_path, random.Random(1), slot=SLOT)
    edges = [((node, node + 1), 1) for node in range(1000)]
    assert sum(runner.epoch([((0,), 1)], edges).values()) == 1001
    assert sum(runner.epoch([], [((800, 801), -1)]).values()) == -200
    assert sum(runner.epoch([], [((799, 801), 1)]).values()) == 200


def test_a_round_leaves_no_more_in_memory_than_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(spec_of(reach()), reach().types, tmp_path, random.Random(1), slot=SLOT)
    edges = [((node, node + 1), 1) for node in range(160)]
    for starts, links in (([((0,), 1)], edges), ([((0,), -1)], [])):
        held: list[int] = []

        def noted(_: str, held: list[int] = held) -> None:
            if len(held) in (60, 160):
                gc.collect()
            held.append(pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0])

        tracemalloc.start()
        try:
            monkeypatch.setattr(failpoints, "hook", noted)
            runner.epoch(starts, links)
        finally:
            tracemalloc.stop()
        assert len(held) > 160
        grown = (held[160] - held[60]) / 100
        assert grown < 512, f"a round has one row, in three traces, and left {grown:.0f} bytes"


def test_a_loop_that_goes_on_for_ever_ends_with_an_error_and_loses_nothing(tmp_path: Path) -> None:
    case = diverging()
    runner = Runner(spec_of(case), case.types, tmp_path, random.Random(1), slot=SLOT)
    assert runner.epoch([((7,), 1)]) == bag([((7,), 1)])
    with pytest.raises(LoopDiverged) as raised:
        runner.epoch([((0,), 1)])
    assert raised.value.fields["max_rounds"] == 20 and raised.value.fields["epoch"] == 1
    assert raised.value.fields["changing"] == 1 and raised.value.fields["rows"]
    assert runner.epoch([((8,), 1)]) == bag([((8,), 1)])


@pytest.mark.parametrize("starts", [True, False], ids=["start", "input"])
def test_a_row_that_comes_and_goes_in_one_epoch_is_not_computed_with(starts: bool, tmp_path: Path) -> None:
    """A row on which an expression fails, inserted and then deleted again before the next step."""
    start, z = leaf(input_name(0), "n"), leaf(variable_name(0), "m")
    given = z if starts else Union((start, select(z, n="m", predicate=condition("<", z.column("m"), whole(0)))))
    product = Operation("*", (given.column(given.columns[0]), whole(2**62)), "bigint")
    body = Linear(given, None, (Named("n", product),))
    loop = Loop((leaf("starts", "n"),), (LoopVariable(body, 0 if starts else None),), 0, 20, rounds=1)
    case = Case(loop, lambda start: start)
    runner = Runner(spec_of(case), case.types, tmp_path, random.Random(1), slot=SLOT)
    assert runner.epoch([((1,), 1)]) == bag([((2**62,), 1)])
    assert runner.epoch([((5,), 1), ((0,), 1), ((5,), -1)]) == bag([((0,), 1)])
    with pytest.raises(EvaluationError, match="long overflow"):
        runner.epoch([((5,), 1)])
