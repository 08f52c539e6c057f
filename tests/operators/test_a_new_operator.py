"""An operator is one file: `frequent` (keyed) and `parity` (linear), written by docs/adding-an-operator.md.

Nothing in the package knows of them. Random changes catch a wrong kernel. A flow without Spark, whose driver dies and
is taken over from on another host, catches whatever the plan, the tasks, merging or recovery would have to be told.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.guarantees.strategies import NoSync
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.rewrites import rewrite
from holdfast.plan.dataflow import build
from holdfast.plan.explain import explain
from holdfast.plan.expression import Tree, condition, number
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Named, Node, Source, same
from holdfast.plan.placement import placement
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator.model import SOURCES
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import SimulatedSink, SimulatedSource, World, bag_of
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import forget_all
from holdfast.trace.name import ALL
from operators.frequent import Frequent, FrequentSpec
from operators.parity import Parity
from operators.running import Runner, added, bag

ORDERS = Source("orders", SOURCES["orders"])
LEAST = 3


def meant(rows: Counter[Any], key: int, least: int) -> Counter[Any]:
    """What the operator means, said plainly."""
    counts: Counter[Any] = Counter()
    for row, copies in rows.items():
        counts[row[key]] += copies
    return Counter({row: copies for row, copies in rows.items() if copies and counts[row[key]] >= least})


@pytest.mark.parametrize("bits", [64, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_its_change_is_the_difference_of_what_it_means(bits: int, data: st.DataObject) -> None:
    spec = FrequentSpec((1,), LEAST, (pa.string(), pa.int64()))
    assert pickle.loads(pickle.dumps(spec)) == spec
    rows = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))
    epochs = data.draw(st.lists(st.lists(st.tuples(rows, st.integers(1, 2)), max_size=6), min_size=1, max_size=6))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    with tempfile.TemporaryDirectory() as directory, weak_bits(bits):
        runner = Runner(spec, [spec.types], Path(directory), dice)
        there: Counter[Any] = Counter()
        for come in epochs:
            gone = [(row, -dice.randint(1, copies)) for row, copies in there.items() if dice.random() < 0.4]
            before = meant(there, 1, LEAST)
            there = added(there, bag([*come, *gone]))
            assert runner.epoch([*come, *gone]) == added(meant(there, 1, LEAST), before, -1)


def test_conditions_on_its_key_and_columns_that_nobody_reads_pass_it() -> None:
    def over(orders: Node, predicate: Tree | None) -> Node:
        found = Frequent(orders, ("user",), LEAST)
        outputs = (Named("id", found.column("id")), Named("user", found.column("user")))
        return Linear(found, predicate, outputs)

    by_key, by_id = (condition(">", ORDERS.column(name), number(1)) for name in ("user", "id"))
    narrow = Linear(ORDERS, by_key, same(ORDERS)[:2])
    assert rewrite(over(ORDERS, by_key)) == Frequent(narrow, ("user",), LEAST)
    kept = rewrite(over(ORDERS, by_id))
    assert isinstance(kept, Linear) and kept.predicate == by_id  # how many rows a user has depends on all of them


def test_its_meaning_is_its_fingerprint() -> None:
    one = Frequent(ORDERS, ("user",), LEAST)
    others = [Frequent(ORDERS, ("user",), LEAST + 1), Frequent(ORDERS, ("id",), LEAST), ORDERS]
    assert fingerprint(one) == fingerprint(Frequent(Linear(ORDERS, None, same(ORDERS)), ("user",), LEAST))
    assert len({fingerprint(each) for each in (one, *others)}) == 4


def _counted(node: Node) -> Node:
    return Aggregate(node, ("user",), (Call("orders", "count", (), "bigint"),))


def test_conditions_and_columns_pass_a_new_step_and_explain_shows_it() -> None:
    def over(orders: Node) -> Parity:
        return Parity(orders, "id", "odd")

    by_user = condition(">", ORDERS.column("user"), number(1))
    wanted = Linear(over(ORDERS), by_user, (Named("odd", over(ORDERS).column("odd")),))
    narrow = Linear(ORDERS, by_user, same(ORDERS)[:1])
    assert rewrite(wanted) == Linear(over(narrow), None, wanted.outputs)
    text = explain(build({"odd": Frequent(over(ORDERS), ("odd",), LEAST)}, {}, lambda _: True), "odd")
    assert "exchange: id is odd as odd" in text


def test_explain_shows_it_and_what_reads_it_by_its_key_stays_in_its_task() -> None:
    frequent = Frequent(ORDERS, ("user",), LEAST)
    flow = build({"regulars": frequent, "loyalty": _counted(frequent)}, {}, lambda _: True)
    text = explain(flow, "loyalty")
    assert "rows of each user that has at least 3  [stage 1; cost of the group; shared with regulars]" in text
    assert "1 exchange per epoch" in text and placement(_counted(frequent)).stage == 1


def _open(world: World, views: dict[str, Node], host: int) -> Engine:
    declared = Declaration(
        name="frequent",
        local=world.local(host),
        locations=tuple(world.locations()),
        sources={name: SimulatedSource(world, name) for name in SOURCES},
        views=views,
        texts=dict.fromkeys(views, "written as a plan"),
        sinks=[(view, SimulatedSink(world, view)) for view in views],
        settings=DurabilitySettings(NoSync(), 2, Bound(), Retention(epochs=6)),
    )
    return Engine(PreparedFlow(declared, SimulatedRunner(world, 2)), ConnectorProgress())


@pytest.mark.parametrize("seed", range(3))
def test_a_flow_keeps_it_through_deletions_merges_and_the_loss_of_a_host(seed: int, tmp_path: Path) -> None:
    world, dice = World(seed, tmp_path), random.Random(seed)
    regulars = Frequent(ORDERS, ("user",), LEAST)
    by_parity = Aggregate(Parity(regulars, "id", "odd"), ("odd",), (Call("orders", "count", (), "bigint"),))
    views = {"regulars": regulars, "loyalty": _counted(regulars), "parity": by_parity}
    engine = _open(world, views, 0)
    for epoch in range(24):
        there = sorted(world.rows["orders"])
        gone = dice.sample(there, min(len(there), dice.randrange(4)))
        come = [(epoch * 10 + number, dice.randrange(4), 5) for number in range(dice.randrange(4))]
        world.feed("orders", [*((row, 1) for row in come), *((row, -1) for row in gone)])
        engine.step()
        if epoch % 3 != 2:
            engine.upkeep()  # merges layers and copies them; what is not copied must be computed again
        if epoch % 8 == 7:  # the driver dies, with all its layers, and another host takes over
            engine.abandon()
            forget_all()
            engine = _open(world, views, epoch)
        expected = meant(world.rows["orders"], 1, LEAST)
        assert _rows(engine, "regulars") == expected
        users = Counter(row[1] for row in expected.elements())
        assert _rows(engine, "loyalty") == Counter((user, orders) for user, orders in users.items())
        odd = Counter(bool(row[0] % 2) for row in expected.elements())
        assert _rows(engine, "parity") == Counter((each, orders) for each, orders in odd.items())
    engine.close()


def _rows(engine: Engine, view: str) -> Counter[Any]:
    kept, last = engine.views.readable(view, None)
    return bag_of(kept.rows(0, ALL, last))
