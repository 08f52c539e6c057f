"""The latest version of each key, against plain Python: random versions, deletions, partitions, merges, weak hashes."""

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

from holdfast.connectors.keyed_source import KeyedSource
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import NegativeMultiplicity
from holdfast.guarantees.strategies import NoSync
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.latest import LatestSpec
from holdfast.plan.nodes import Node, Source
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import SimulatedSink, SimulatedSource, World, bag_of
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import forget_all
from holdfast.trace.name import ALL
from operators.running import Runner, added, compare, exact

TYPES = (pa.int64(), pa.string())
ARRIVAL = (*TYPES, pa.bool_(), pa.bool_())
PLACE = (pa.int64(), pa.int64(), pa.int64())

KEYS = st.sampled_from([1, 2, 3, None])
TEXTS = st.sampled_from(["a", "b", None])


def rows_of(current: dict[Any, Any]) -> Counter[Any]:
    return Counter({tuple(map(exact, row)): 1 for row in current.values()})


@pytest.mark.parametrize("bits", [64, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_later_version_replaces_an_earlier_one_and_a_deletion_removes_it(bits: int, data: st.DataObject) -> None:
    spec = LatestSpec(TYPES, (0,), None, "t")
    assert pickle.loads(pickle.dumps(spec)) == spec
    epochs = data.draw(st.lists(st.lists(st.tuples(KEYS, TEXTS, st.booleans()), max_size=6), min_size=1, max_size=6))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    with tempfile.TemporaryDirectory() as directory, weak_bits(bits):
        runner = Runner(spec, [(*ARRIVAL, *PLACE)], Path(directory), dice)
        current: dict[Any, Any] = {}
        for versions in epochs:
            before = rows_of(current)
            change = []
            for place, (key, text, deleted) in enumerate(versions):
                change.append(((key, text, deleted, False, 0, place // 2, place), 1))
                if deleted:
                    current.pop(key, None)
                else:
                    current[key] = (key, text)
            assert runner.epoch(change) == added(rows_of(current), before, -1)
            assert sum(runner.state("rows").values()) == len(current)  # nothing of what was replaced is kept


@pytest.mark.parametrize("bits", [64, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_with_an_order_column_the_result_does_not_depend_on_the_order_of_arrival(
    bits: int, data: st.DataObject
) -> None:
    spec = LatestSpec((*TYPES, pa.int64()), (0,), 2, "t")
    arrivals = data.draw(st.lists(st.tuples(KEYS, TEXTS, st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))

    def greater(one: Any, other: Any) -> bool:
        return next((c > 0 for c in map(compare, one, other) if c), False)

    with tempfile.TemporaryDirectory() as directory, weak_bits(bits):
        runner = Runner(spec, [(*TYPES, pa.int64(), pa.bool_(), pa.bool_())], Path(directory), dice)
        best: dict[Any, Any] = {}
        there: Counter[Any] = Counter()
        while arrivals:
            some, arrivals = arrivals[:3], arrivals[3:]
            for key, text, seq, deleted in some:
                version = (seq, deleted, None if deleted else text)
                if key not in best or greater(version, best[key]):
                    best[key] = version
            change = [((key, text, seq, deleted, True), 1) for key, text, seq, deleted in some]
            there = added(there, runner.epoch(change))
            assert there == Counter(
                {tuple(map(exact, (key, text, seq, deleted))): 1 for key, (seq, deleted, text) in best.items()}
            )


def _open(world: World, host: int, order: str | None) -> Engine:
    inner = SimulatedSource(world, "orders")
    inner.in_order = True
    orders = KeyedSource("orders", inner, "id", order, None)
    node = orders.versions.rows(Source("orders", orders.fields))
    spend = Aggregate(node, ("user",), (Call("n", "count", (), "bigint"),))
    views: dict[str, Node] = {"orders_now": node, "spend": spend}
    declared = Declaration(
        name="latest",
        local=world.local(host),
        locations=tuple(world.locations()),
        sources={"orders": orders},
        views=views,
        texts=dict.fromkeys(views, "written as a plan"),
        sinks=[(view, SimulatedSink(world, view)) for view in views],
        settings=DurabilitySettings(NoSync(), 2, Bound(), Retention(epochs=6)),
        expiring={"orders": node},
    )
    return Engine(PreparedFlow(declared, SimulatedRunner(world, 2)), ConnectorProgress())


@pytest.mark.parametrize(("seed", "order"), [(1, None), (2, "amount")])
def test_a_flow_keeps_it_through_merges_and_the_loss_of_a_host(seed: int, order: str | None, tmp_path: Path) -> None:
    world, dice = World(seed, tmp_path), random.Random(seed)
    engine = _open(world, 0, order)
    current: dict[int, Any] = {}
    for epoch in range(24):
        versions = []
        for _ in range(dice.randrange(6)):
            key, amount = dice.randrange(8), dice.randrange(100)
            gone = dice.random() < 0.3 and (order is not None or (key in current and current[key] is not None))
            versions.append(((key, dice.randrange(3), amount), -1 if gone else 1))
            later = order is None or key not in current or (amount, gone) > (current[key][1], current[key][0] is None)
            if gone and later:
                current[key] = (None, amount) if order is not None else None
            elif not gone and later:
                current[key] = (versions[-1][0], amount)
            elif not gone and current[key][1] == amount and current[key][0] is not None:
                current[key] = (max(current[key][0], versions[-1][0]), amount)
        world.feed("orders", versions)
        engine.step()
        if epoch % 3 != 2:
            engine.upkeep()
        if epoch % 8 == 7:  # the driver dies, with all its layers, and another host takes over
            engine.abandon()
            forget_all()
            engine = _open(world, epoch, order)
        rows = Counter(version[0] for version in current.values() if version is not None and version[0] is not None)
        kept, last = engine.views.readable("orders_now", None)
        assert bag_of(kept.rows(0, ALL, last)) == rows
        kept, last = engine.views.readable("spend", None)
        assert bag_of(kept.rows(0, ALL, last)) == Counter(Counter(row[1] for row in rows).items())
    engine.close()


def test_a_deletion_of_a_key_that_is_not_there_names_it_and_the_way_out(tmp_path: Path) -> None:
    spec = LatestSpec(TYPES, (0,), None, "orders")
    runner = Runner(spec, [(*ARRIVAL, *PLACE)], tmp_path, random.Random(0))
    runner.epoch([((1, "a", False, False, 0, 0, 0), 1)])
    for wrong in ([((7, None, True, True, 1, 0, 0), 1)], [((1, None, True, True, 1, 0, row), 1) for row in (0, 1)]):
        with pytest.raises(NegativeMultiplicity, match=r"'orders', epoch 1: .*on_missing='ignore'") as caught:
            runner.epoch(wrong)
        assert caught.value.fields["keys"] == [(wrong[0][0][0],)]
    gone = [
        ((2, "b", False, False, 1, 0, 0), 1),
        ((2, None, True, True, 1, 0, 1), 1),
        ((1, None, True, True, 1, 0, 2), 1),
    ]
    assert runner.epoch(gone) == Counter({tuple(map(exact, (1, "a"))): -1})
