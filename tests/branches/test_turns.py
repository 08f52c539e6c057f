"""Branches and the main line, used by several threads: who waits for whom."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.coordinator.lineage import Lineage
from holdfast.runtime.engine import Engine
from holdfast.runtime.runner import Work
from holdfast.runtime.view_reading import ViewReading
from holdfast.task.view_log import ViewLog

from ..durability.shop import SOON, engine, until


def opened(spark: SparkSession, log: Path, epochs: int) -> hf.Flow:
    flow = hf.Flow("small", log=log, spark=spark, partitions=1)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.view("count", "SELECT user, count(*) AS n FROM orders GROUP BY user")
    for n in range(epochs):
        orders.insert([("ada", n + 1)])
        flow.step()
    return flow


def rows(flow: hf.Flow) -> Counter[Any]:
    return Counter(map(tuple, flow.read("spend").collect()))


def test_a_branch_reads_what_members_keep_in_the_turn_of_the_main_line_and_not_in_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair that is due takes place in the same turn, so it misses no epoch. Whoever promotes has the turn of the
    main line first, too, so the two do not wait for each other."""
    flow = opened(spark, tmp_path / "log", 3)
    branch = flow.branch("fed", at=0)
    turns: list[tuple[bool, bool]] = []
    read = Engine.recorded_work

    @contextmanager
    def recorded_work(main: Engine, recorded: Lineage, partitions: int) -> Iterator[list[Work]]:
        turns.append((flow._turns.inside, branch._turns.inside))
        with read(main, recorded, partitions) as work:
            yield work

    monkeypatch.setattr(Engine, "recorded_work", recorded_work)
    monkeypatch.setattr(Engine, "reads_members", lambda main, recorded: True)
    done: list[int] = []
    with flow._turns.taken("an epoch"):
        feeding = threading.Thread(target=lambda: done.append(branch.replay()))
        feeding.start()
        until(lambda: bool(flow._turns._queue))
        assert branch._turns.is_free and not turns
    feeding.join(SOON)
    assert done == [2] and turns == [(True, False)] * 2 and rows(branch) == rows(flow)
    branch.close()
    flow.close()


@pytest.mark.parametrize("read", [hf.Flow.read, hf.Flow.changes, lambda flow, view: hf.compare(flow, flow, view)])
def test_a_view_that_is_dropped_while_a_reader_waits_for_its_turn_is_not_found(
    spark: SparkSession, tmp_path: Path, read: Callable[[hf.Flow, str], object]
) -> None:
    flow = opened(spark, tmp_path / "log", 1)
    said: list[BaseException] = []

    def reads() -> None:
        with pytest.raises(hf.UnknownName, match="view 'count' not found") as caught:
            read(flow, "count")
        said.append(caught.value)

    with flow._turns.taken("drop()"):
        reading = threading.Thread(target=reads)
        reading.start()
        until(lambda: bool(flow._turns._queue))
        flow._declared(flow._catalog.without_view("count"))
    reading.join(SOON)
    assert said
    flow.close()


def test_a_subscription_to_a_view_that_is_dropped_says_so(spark: SparkSession, tmp_path: Path) -> None:
    flow = opened(spark, tmp_path / "log", 1)
    with flow.subscribe("count", since=-1, timeout=SOON) as changes:
        assert next(changes).epoch == 0
        flow.drop("count")
        with pytest.raises(hf.UnknownName, match="view 'count' not found"):
            next(changes)
    flow.close()


def test_a_flow_that_is_declared_again_while_the_other_one_opens_is_compared_as_it_is_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = opened(spark, tmp_path / "log", 2)
    branch = flow.branch("beside", at=1)
    looking, readable = branch._looking, ViewReading.readable
    read: list[bool] = []

    def opens(view: str | None = None) -> Engine:
        if branch._engine is None:
            flow.view("more", "SELECT count(*) AS n FROM orders").step()
        return looking(view)

    def reads(views: ViewReading, view: str, at: int | None, recorded: bool = False) -> tuple[ViewLog, int]:
        read.append(any(views is engine(each).views for each in (flow, branch)))
        return readable(views, view, at, recorded)

    monkeypatch.setattr(branch, "_looking", opens)
    monkeypatch.setattr(ViewReading, "readable", reads)
    assert hf.compare(flow, branch, "spend").equal and read == [True, True]
    branch.close()
    flow.close()
