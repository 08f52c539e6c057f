"""Branches and the main line, used by several threads: who waits for whom."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.coordinator.lineage import Lineage
from holdfast.runtime.engine import Engine
from holdfast.runtime.runner import Work

from ..durability.shop import SOON, until


def opened(spark: SparkSession, log: Path, epochs: int) -> hf.Flow:
    flow = hf.Flow("small", log=log, spark=spark, partitions=1)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
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
