"""Edits of views, together with losses: what the simulator once found, cut down."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.plan.expression import Literal, condition
from holdfast.plan.nodes import Linear, Source, same
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator import run
from holdfast.testing.simulator.actions import Close, Edit, Feed, LoseLayers, SinkWeather, Step, Upkeep, Weather
from holdfast.testing.simulator.model import USERS
from holdfast.testing.simulator.runner import SimulatedRunner
from tests.guarantees.engines import Append, Life


def test_a_kept_operator_that_reads_a_lost_new_one_is_computed_with_it() -> None:
    actions = [
        Step(host=0),
        Weather(location=2, fail_before=0.0, fail_after=0.5, truncate=0.2),
        Feed(seed=3609918733),
        Step(host=0),
        Upkeep(host=0),
        Edit(host=0, edition=1),
        Step(host=0),
        LoseLayers(host=0, seed=3022965804, share=0.1),
    ]
    assert run(5040, actions) is None


def test_a_view_that_was_filled_on_another_host_before_any_epoch_is_filled_again() -> None:
    actions = [
        Step(host=0),
        Edit(host=0, edition=0),
        Feed(seed=3273892832),
        Step(host=0),
        Close(host=0),
        Step(host=0),
        SinkWeather(failing=0.2),
        Edit(host=0, edition=1),
        Step(host=1),
    ]
    assert run(5030, actions) is None


def test_a_view_that_is_edited_after_its_only_epoch_takes_back_what_a_function_was_given(tmp_path: Path) -> None:
    """The function cannot tell in the next process that it has that epoch; it may be given it again, no more."""
    life = Life(tmp_path, hf.nosync(), kind=Append, view="counted")
    life.feed(3)
    life.step()
    life.die()
    users = Source("users", USERS)
    odd = Linear(users, condition(">", users.column("city"), Literal(0, "bigint")), same(users))
    edited = Aggregate(odd, ("city",), (Call("n", "count", (), "bigint"),))
    ready = life.prepared()
    declared = replace(ready.declared, views={"counted": edited})
    engine = Engine(PreparedFlow(declared, SimulatedRunner(life.world, 2)), ConnectorProgress())
    while not engine.step().idle:
        pass
    engine.close()
    once = dict(zip(life.given.numbers, life.given.changes, strict=True))
    total: Counter[tuple[Any, ...]] = Counter()
    for change in once.values():
        for *row, diff in change:
            total[tuple(row)] += diff
    assert +total == Counter({(1, 2): 1}) and min(total.values()) >= 0
