"""Editing a view: only what changed its meaning is made anew, and every sink ends up with the new contents.

What a sink holds is the sum of all that it was ever given; after each edit it must be Spark's batch result of the new
query, whatever crashed on the way. What was rebuilt, and from what, is asserted by ``flow.last_recovery``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import SinkError
from holdfast.testing import Crash, Oracle, assert_same_rows, crash_at, total_of_changes

SCHEMA = "id long, user string, amount double"
SPEND = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"
MORE = "SELECT user, sum(amount * 2) AS total FROM orders WHERE amount > 1 GROUP BY user"
MOST = "SELECT user, max(amount) AS total FROM orders GROUP BY user"


class Shop:
    """A flow that is opened again and again with other queries, its inputs, and what Spark says of them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.oracle = Oracle(spark, {"orders": SCHEMA})
        self.views: dict[str, str] = {}
        self.given: list[pa.Table] = []
        """What the function that is a sink of 'spend' was given, with the epoch."""

        self.number = 0

    def open(self, views: dict[str, str], *sinks: str, function: bool = False, **options: Any) -> hf.Flow:
        self.views = views
        options = {"log": self.root / "log", "partitions": 2, **options}
        flow = hf.Flow("shop", spark=self.spark, **options)
        self.orders = flow.input("orders", SCHEMA)
        for name, sql in views.items():
            flow.view(name, sql)
        for name in sinks:
            flow.sink(name, hf.changelog(self.root / f"out-{name}"))
        if function:
            flow.sink("spend", hf.foreach(self.take))
        self.sinks = sinks
        return flow

    def take(self, epoch: int, change: pa.Table) -> None:
        if self.given and epoch <= self.given[-1].column("_epoch")[0].as_py():
            return  # a function cannot say what it has seen: it is given the last epoch again after a restart
        self.given.append(change.append_column("_epoch", pa.array([epoch] * change.num_rows, pa.int64())))

    def step(self, flow: hf.Flow, epochs: int = 1) -> None:
        for _ in range(epochs):
            self.number += 1
            rows = [
                (self.number * 10 + each, ["ada", "bob", "cyd"][each], float(self.number + each)) for each in (0, 1, 2)
            ]
            self.orders.insert(rows)
            self.oracle.insert("orders", rows)
            if self.number % 2 == 0:
                gone = self.oracle.rows("orders")[:1]
                self.orders.delete(gone)
                self.oracle.delete("orders", gone)
            flow.step()

    def held(self, name: str) -> pa.Table:
        """What the changelog of a view adds up to."""
        return total_of_changes(self.spark.read.parquet(str(self.root / f"out-{name}")))

    def check(self, flow: hf.Flow) -> None:
        expected = self.oracle.expect(self.views)
        for name in self.views:
            assert_same_rows(flow.read(name), expected[name], f"view {name}")
        for name in self.sinks:
            assert_same_rows(self.held(name), expected[name], f"sink of {name}")


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def die(flow: hf.Flow) -> None:
    """The process dies: nothing is finished."""
    engine: Any = flow._engine
    if engine is not None:
        engine._maintenance.close()
        engine._durability._background.close()
        engine.abandon()
        flow._engine = None


def kinds(flow: hf.Flow) -> list[str]:
    """The kinds of the operators that opening the flow filled."""
    engine: Any = flow._started()
    return sorted(engine._compiled.flow.operators[mark].kind for mark in engine.recovery.partitions)


def test_the_sinks_of_an_edited_view_get_the_difference_and_nothing_else_is_rebuilt(shop: Shop) -> None:
    views = {"spend": SPEND, "big": "SELECT user FROM spend WHERE total > 3", "n": "SELECT count(*) AS n FROM orders"}
    with shop.open(views, "spend", "big", "n", function=True) as flow:
        shop.step(flow, 2)
        shop.check(flow)
    with shop.open({**views, "spend": MORE}, "spend", "big", "n", function=True) as flow:
        assert kinds(flow) == ["aggregate", "log", "log"]
        assert flow.last_recovery is not None and flow.last_recovery.read == ("orders",)
        files = len(list((shop.root / "out-n").iterdir()))
        assert flow.step().epoch == 2, "the edit is an epoch, though nothing waits"
        shop.check(flow)
        assert flow.step().idle
        changes = shop.spark.read.parquet(str(shop.root / "out-spend")).where("_epoch = 2").collect()
        assert {row._diff for row in changes} == {1, -1}
        assert len(list((shop.root / "out-n").iterdir())) <= files + 1, "what did not change says nothing"
        shop.step(flow, 2)
        shop.check(flow)
        text = flow.explain("spend")
        assert "ms per epoch" in text and "shared with big" in text and re.search(r"last change \d+ rows, mean", text)
    assert_same_rows(total_of_changes(pa.concat_tables(shop.given)), shop.oracle.expect({"spend": MORE})["spend"])
    assert [table.column("_epoch")[0].as_py() for table in shop.given] == [0, 1, 2, 3, 4]
    with shop.open({**views, "spend": MORE}, "spend", "big", "n") as flow:
        assert flow.step().idle and kinds(flow) == []


def test_a_view_that_was_fused_with_what_it_reads_is_filled_from_its_rows(shop: Shop) -> None:
    views = {
        "spend": SPEND,
        "each": "SELECT o.id, initcap(o.user) AS shown, s.total * 2 AS twice FROM orders o JOIN spend s "
        "ON s.user = o.user WHERE o.amount < s.total",
    }
    with shop.open(views, "each") as flow:
        shop.step(flow, 3)
    edited = {**views, "sums": "SELECT reverse(shown) AS back, sum(twice + 1) AS s FROM each WHERE id > 12 GROUP BY 1"}
    with shop.open(edited, "each") as flow:
        plan = flow.plan()
        assert [change.reads for change in plan.changes if change.name == "sums"] == [("view 'each'",)]
        assert kinds(flow) == ["aggregate", "log"]
        assert flow.last_recovery is not None and flow.last_recovery.read == ("each",)
        shop.check(flow)
        shop.step(flow, 2)
        shop.check(flow)


def test_a_view_over_an_unchanged_one_is_filled_from_its_rows(shop: Shop) -> None:
    views = {"spend": SPEND, "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 1"}
    with shop.open(views, "spend", "top") as flow:
        shop.step(flow, 3)
    edited = {**views, "top": "SELECT user, upper(user) AS loud, total FROM spend WHERE total < 1000"}
    with shop.open(edited, "spend") as flow:
        assert kinds(flow) == ["log"]
        assert flow.last_recovery is not None and flow.last_recovery.read == ("spend",)
        shop.check(flow)
        shop.step(flow, 2)
        shop.check(flow)
    with shop.open(
        {**views, "top": "SELECT s.user, s.total, o.id FROM spend s JOIN orders o ON s.user = o.user"}
    ) as flow:
        assert kinds(flow) == ["join", "log"]
        assert flow.last_recovery is not None and flow.last_recovery.read == ("orders", "spend")
        shop.check(flow)
        shop.step(flow)
        shop.check(flow)


@pytest.mark.parametrize(
    "mark", ["recovery.before_replay", "epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit"]
)
def test_a_crash_around_an_edit_loses_nothing_and_gives_nothing_twice(shop: Shop, mark: str) -> None:
    flow = shop.open({"spend": SPEND}, "spend")
    shop.step(flow, 2)
    with pytest.raises(Crash), crash_at("sink.before_commit"):
        shop.step(flow)  # the sink lags when the view is edited
    die(flow)
    flow = shop.open({"spend": MORE}, "spend")
    with pytest.raises(Crash), crash_at(mark):
        flow.step()
    die(flow)
    if mark == "epoch.ran":
        flow = shop.open({"spend": MOST}, "spend")  # edited again, before anybody saw the first edit
        with pytest.raises(Crash), crash_at("sink.before_commit"):
            flow.step()
        die(flow)
    flow = shop.open({"spend": MORE}, "spend")
    flow.run(until="idle")
    shop.check(flow)
    shop.step(flow)
    shop.check(flow)
    flow.close()


def test_edited_twice_and_back_and_what_nobody_needs_is_removed(shop: Shop) -> None:
    def traces() -> set[str]:
        return {path.parent.name for kind in ("traces", "layers") for path in (shop.root / "log" / kind).glob("*/*")}

    # Nothing of the past is retained; else the logs of edited views stay as long as that, for `flow.changes`.
    with shop.open({"spend": SPEND, "gone": "SELECT count(*) AS n FROM orders"}, "spend", retain=0) as flow:
        shop.step(flow, 2)
        before = traces()
    for sql in (MORE, MOST, SPEND):
        with shop.open({"spend": sql}, "spend", retain=0) as flow:
            shop.step(flow)
            shop.check(flow)
            assert before & traces()
            shop.step(flow)
            flow.wait_safe(timeout=60)
            shop.check(flow)
        engine_traces = traces()
        # The input's log, one aggregate and one log: what was before is gone, here and in the log location.
        assert len({trace.split(".")[0] for trace in engine_traces}) == 3, engine_traces


def test_a_sink_that_lags_is_brought_through_all_edits_from_the_log_alone(shop: Shop) -> None:
    place = shop.root / "place"
    flow = shop.open({"spend": SPEND}, "spend", log=place, local=shop.root / "local")
    shop.step(flow, 2)
    with pytest.raises(Crash), crash_at("sink.before_commit"):
        shop.step(flow)
    flow.wait_safe(timeout=60)
    die(flow)
    flow = shop.open({"spend": MORE}, log=place, local=shop.root / "local")  # without its sink
    shop.step(flow, 1)
    flow.wait_safe(timeout=60)
    die(flow)
    shutil.rmtree(shop.root / "local")
    with shop.open({"spend": MOST}, "spend", log=place, local=shop.root / "local") as flow:
        shop.step(flow, 1)
        shop.check(flow)


def test_a_renamed_view_keeps_its_rows_and_a_dropped_one_comes_back(shop: Shop) -> None:
    with shop.open({"spend": SPEND}, "spend") as flow:
        shop.step(flow, 2)
    with shop.open({"renamed": SPEND}, "renamed") as flow:
        assert kinds(flow) == []
        flow.run(until="idle")
        shop.check(flow)
        shop.step(flow)
        shop.check(flow)
    with shop.open({"spend": MORE}, "spend") as flow:
        flow.run(until="idle")
        shop.check(flow)


def test_a_view_that_is_dropped_for_some_epochs_goes_on_with_its_sink(shop: Shop) -> None:
    """As in a notebook that is run again: its first cells know nothing of the later ones."""
    with shop.open({"spend": SPEND}, "spend") as flow:
        shop.step(flow, 2)
    with shop.open({"other": "SELECT id FROM orders"}) as flow:
        shop.step(flow, 2)
        flow.wait_safe(timeout=60)
        shop.step(flow)
    with shop.open({"spend": SPEND}, "spend") as flow:
        flow.run(until="idle")
        shop.step(flow)
        shop.check(flow)


def test_columns_that_a_sink_cannot_take_are_refused_and_nothing_is_lost(shop: Shop) -> None:
    with shop.open({"spend": SPEND}, "spend", function=True) as flow:
        shop.step(flow, 2)
    other = "SELECT user, CAST(sum(amount) AS string) AS total FROM orders GROUP BY user"
    flow = shop.open({"spend": other}, "spend")
    with pytest.raises(SinkError, match=r"with other columns: there \(.*total double\), now \(.*total string\)"):
        flow.step()
    flow = shop.open({"spend": other}, function=True)
    with pytest.raises(SinkError, match=r"columns were of types \(string, double\), and now are \(string, string\)"):
        flow.step()
    with shop.open({"spend": SPEND}, "spend") as flow:
        shop.step(flow)
        shop.check(flow)


def test_a_view_whose_columns_change_gets_another_sink_in_the_same_process(shop: Shop) -> None:
    with shop.open({"spend": SPEND}, "spend") as flow:
        shop.step(flow, 2)
        flow.view("spend", "SELECT user, CAST(sum(amount) AS string) AS total FROM orders GROUP BY user")
        for _ in range(2):
            with pytest.raises(SinkError, match=r"now \(.*total string\); let go of it \(flow.unsink\('spend'\)\)"):
                flow.step()
        flow.unsink("spend")
        flow.sink("spend", hf.changelog(shop.root / "as-text"))
        shop.step(flow)
        given = total_of_changes(shop.spark.read.parquet(str(shop.root / "as-text")))
        assert_same_rows(given, flow.read("spend").toArrow())


def test_a_changed_body_of_a_function_is_a_change_of_meaning(shop: Shop) -> None:
    sql = {"spend": "SELECT id, f(amount) AS total FROM orders", "other": "SELECT user FROM orders"}
    bodies: list[Callable[[Any], Any]] = [lambda x: x * 2, lambda x: x * 3]
    for place, body in enumerate(bodies):
        flow = hf.Flow("shop", log=shop.root / "log", spark=shop.spark, partitions=2)
        orders = flow.input("orders", SCHEMA)
        flow.udf("f", hf.nondeterministic(body), "double")
        for name, text in sql.items():
            flow.view(name, text)
        flow.sink("spend", hf.changelog(shop.root / "out-spend"))
        with flow:
            if place == 0:
                orders.insert([(1, "ada", 5.0)])
                assert flow.step().epoch == 0
            else:
                assert kinds(flow) == ["draw", "log"]
                assert flow.step().epoch == 1
    assert shop.held("spend").to_pylist() == [{"id": 1, "total": 15.0}]
