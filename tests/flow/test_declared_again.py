"""A notebook cell that is run twice goes on: the handle before is closed, and what means the same changes nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.input import Input
from holdfast.errors import DeclarationError
from logged import logged

COUNT = "SELECT k, count(*) AS n FROM t GROUP BY k"


def _cell(
    spark: SparkSession, log: Path, sink: Callable[[int, pa.Table], object] | None = None
) -> tuple[hf.Flow, Input]:
    flow = hf.Flow("cell", log=log, spark=spark, partitions=1)
    t = flow.input("t", "k long")
    flow.view("v", COUNT)
    if sink is not None:
        flow.sink("v", hf.foreach(sink))
    return flow, t


def _counted(flow: hf.Flow) -> dict[int, int]:
    return {row.k: row.n for row in flow.read("v").collect()}


def test_a_flow_declared_again_takes_over_from_one_that_nobody_holds_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, t = _cell(spark, tmp_path / "log")
    t.insert([(1,)])
    flow.step()
    del flow, t
    gc.collect()
    flow, t = _cell(spark, tmp_path / "log")
    t.insert([(1,)])
    flow.step()
    assert _counted(flow) == {1: 2}
    flow.close()


def test_a_flow_declared_again_takes_over_from_the_handle_before(spark: SparkSession, tmp_path: Path) -> None:
    given: list[int] = []

    def take(epoch: int, change: pa.Table) -> None:
        given.append(epoch)

    first, t = _cell(spark, tmp_path / "log", take)
    t.insert([(1,)])
    first.step()
    t.insert([(1,)])
    second, u = _cell(spark, tmp_path / "sub" / ".." / "log", take)  # the same place
    assert second.status().epoch == 0
    t.insert([(2,)])
    assert first.step().epoch == 1, "nothing was taken over by looking"
    t.insert([(7,)])
    with logged("1 of input 't'"):
        second.step()
    u.insert([(2,)])
    second.step()
    assert _counted(second) == {1: 2, 2: 2}
    assert given == [0, 1, 2], "what one handle was given the other is not given again"
    with pytest.raises(DeclarationError, match="closed: it was declared again"):
        first.step()
    first.close()
    assert _counted(second) == {1: 2, 2: 2}
    second.close()


def test_a_run_of_the_handle_before_ends_at_the_end_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    first, t = _cell(spark, tmp_path / "log")
    began = threading.Event()
    counted: list[int] = []
    running = threading.Thread(
        target=lambda: counted.append(first.run(interval=0.01, on_epoch=lambda _: began.set())), daemon=True
    )
    t.insert([(1,)])
    running.start()
    assert began.wait(60)
    second, _ = _cell(spark, tmp_path / "log")
    assert _counted(second) == {1: 1}
    running.join(30)
    assert counted and counted[0] >= 1
    second.close()


def test_declaring_the_same_again_changes_nothing_and_another_edits(spark: SparkSession, tmp_path: Path) -> None:
    given: list[tuple[str, int]] = []

    def make(word: str) -> Callable[[int, pa.Table], object]:
        def take(epoch: int, change: pa.Table) -> None:
            given.append((word, epoch))

        return take

    with hf.Flow("again", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.udf("twice", lambda x: 2 * x, returns="long")
        flow.view("v", "SELECT k, twice(k) AS d FROM t")
        flow.sink("v", hf.foreach(make("one"))).sink("v", hf.changelog(tmp_path / "out"))
        t.insert([(1,)])
        flow.step()
        engine = flow._engine
        assert flow.input("t", "k long") is t
        flow.udf("twice", lambda x: 2 * x, returns="long")
        flow.view("v", "select k, twice(k) as d  from t -- the same")
        flow.sink("v", hf.foreach(make("one"))).sink("v", hf.changelog(tmp_path / "out"))
        assert flow._engine is engine, "nothing was opened again"
        assert len(flow._sinks) == 2
        flow.sink("v", hf.foreach(make("two")))
        assert len(flow._sinks) == 2 and flow._engine is None
        t.insert([(2,)])
        flow.step()
        assert given == [("one", 0), ("two", 1)]
        flow.udf("twice", lambda x: 3 * x, returns="long")
        flow.step()
        assert sorted(map(tuple, flow.read("v").collect())) == [(1, 3), (2, 6)]
        flow.view("v", "SELECT k, k AS d FROM t")
        flow.step()
        assert sorted(map(tuple, flow.read("v").collect())) == [(1, 1), (2, 2)]
        with pytest.raises(DeclarationError, match="already"):
            flow.input("t", "k string")


def test_what_follows_an_edited_view_or_function_is_not_blamed_on_another_version(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "id long, user string")
        flow.udf("shout", lambda text: text + "!", "string")
        flow.view("names", "SELECT shout(user) AS name, count(*) AS n FROM orders GROUP BY 1")
        flow.view("top", "SELECT * FROM names ORDER BY n DESC LIMIT 1")
        orders.insert([(1, "ada"), (2, "ada"), (3, "bob")])
        flow.step()
        with caplog.at_level("WARNING", "holdfast"):
            flow.udf("shout", lambda text: text + "?", "string")
            flow.step()
            assert [tuple(row) for row in flow.read("top").collect()] == [("ada?", 2)]
            flow.view("names", "SELECT shout(user) AS name, count(*) AS n, max(id) AS last FROM orders GROUP BY 1")
            flow.step()
            assert [tuple(row) for row in flow.read("top").collect()] == [("ada?", 2, 2)]
        assert flow.last_recovery is not None and flow.last_recovery.otherwise == ()
    assert "version of Holdfast" not in caplog.text


def test_a_function_that_is_added_after_edits_is_given_the_flows_own_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    got: list[int] = []
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "id long")
        flow.view("n", "SELECT count(*) AS n FROM orders")
        for number in range(3):
            orders.insert([(number,)])
            flow.step()
            flow.view(f"other_{number}", f"SELECT id + {number} AS id FROM orders")
        flow.sink("n", hf.foreach(lambda epoch, change: got.append(epoch)))
        orders.insert([(9,)])
        last = flow.step().epoch
        flow.view("more", "SELECT id FROM orders")
        orders.insert([(10,)])
        last = flow.step().epoch
    assert got == sorted(set(got)) and got[-1] == last
