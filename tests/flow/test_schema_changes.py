"""An input or source that is declared with another schema: what its rows can follow works and keeps them, also when the
local layers are gone; what they cannot is refused before anything is touched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import SchemaChanged
from holdfast.runtime.schema_changes import is_wider

VIEW = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"


class Log:
    """A flow, opened again and again with other schemas."""

    def __init__(self, spark: SparkSession, directory: Path, **key: Any) -> None:
        self.spark, self.directory, self.key = spark, directory, key

    def run(
        self, schema: str, rows: Sequence[tuple[Any, ...]], gone: Any = None, read: str = "spend", view: str = VIEW
    ) -> list[tuple[Any, ...]]:
        with hf.Flow("shop", log=self.directory / "log", local=self.directory / "local", spark=self.spark) as flow:
            orders = flow.input("orders", schema, **self.key)
            flow.view("spend", view)
            flow.sink("spend", hf.changelog(self.directory / "out"))
            if isinstance(orders, hf.KeyedInput):
                orders.upsert(rows)
                orders.delete_keys(gone or [])
            else:
                orders.insert(rows)
                orders.delete(gone or [])
            flow.step()
            return sorted(map(tuple, (flow.read(read) if read == "spend" else flow.table(read)).collect()), key=repr)

    def delivered(self) -> list[tuple[Any, ...]]:
        """What the sink was given, added up."""
        frame = self.spark.read.parquet(str(self.directory / "out")).groupBy("user", "total").sum("_diff")
        return sorted(tuple(row)[:2] for row in frame.collect() if row[2] != 0)

    def lose_the_host(self) -> None:
        shutil.rmtree(self.directory / "local")


@pytest.mark.parametrize(
    "key",
    [
        {},
        pytest.param({"key": "id"}, marks=pytest.mark.slow),
        pytest.param({"key": "id", "order_by": "id"}, marks=pytest.mark.slow),
    ],
    ids=["rows", "key", "order"],
)
def test_a_nullable_column_that_is_added_and_a_type_that_is_widened_keep_the_rows(
    spark: SparkSession, tmp_path: Path, key: dict[str, str]
) -> None:
    log = Log(spark, tmp_path, **key)
    log.run("id int, user string, amount int", [(1, "ada", 5), (2, "bob", 1)])
    gone: list[Any] = [] if "order_by" in key else [2] if key else [(2, "bob", 1, None)]
    wide = "id long, user string, amount long, city string"
    assert log.run(wide, [(3, "ada", 1 << 40, "Ulm")], gone)[0] == ("ada", 5 + (1 << 40))
    log.lose_the_host()
    rows = log.run(wide, [(4, "eve", 1, None)], read="orders")
    kept = [(1, "ada", 5, None), (3, "ada", 1 << 40, "Ulm"), (4, "eve", 1, None)]
    assert rows == sorted([*kept, *([(2, "bob", 1, None)] if "order_by" in key else [])], key=repr)
    assert log.delivered() == log.run(wide, [(5, "ada", 0, "Ulm")])


def test_a_column_that_no_view_uses_can_be_dropped(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path)
    log.run("id long, user string, note string, amount long", [(1, "ada", "x", 5), (2, "bob", "y", 1)])
    log.lose_the_host()
    assert log.run("id long, user string, amount long", [], [(2, "bob", 1)]) == [("ada", 5)]
    assert log.delivered() == [("ada", 5)]


def test_what_rows_cannot_follow_is_refused_and_nothing_is_touched(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path)
    log.run("id long, user string, amount long", [(1, "ada", 5)])
    for schema, view, why in (
        ("id long, user string, amont long", "SELECT user, sum(amont) AS total FROM orders GROUP BY user", "renamed"),
        ("id int, user string, amount long", VIEW, "column 'id' was bigint, and int does not hold all its values"),
        ("id long, user string, amount double", VIEW.replace("amount", "CAST(amount AS long)"), "'amount' was bigint"),
    ):
        with pytest.raises(SchemaChanged, match=why) as caught:
            log.run(schema, [], view=view)
        assert "in epochs 0 to 0 it was (id bigint, user string, amount bigint)" in str(caught.value)
    assert log.run("id long, user string, amount long", [(2, "ada", 1)]) == [("ada", 6)]


def test_a_type_is_wider_if_it_holds_every_value() -> None:
    wider = [("int", "bigint"), ("tinyint", "double"), ("float", "double"), ("int", "decimal(10,0)")]
    wider += [("decimal(5,2)", "decimal(7,3)"), ("date", "date")]
    narrower = [("bigint", "int"), ("bigint", "double"), ("int", "float"), ("int", "decimal(10,1)")]
    narrower += [("decimal(5,2)", "decimal(6,4)"), ("string", "bigint"), ("int", "string")]
    assert all(is_wider(*pair) for pair in wider) and not any(is_wider(*pair) for pair in narrower)


def _parquet(path: Path, **columns: pa.Array) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)


FILES = {
    "a type is widened": ("id int, amount int", "id long, amount long", {}, {}),
    "a column is added": ("id int, amount int", "id int, amount int, note string", {"on_missing": "null"}, {}),
    "a column is dropped": ("id int, amount int, old int", "id int, amount int", {}, {}),
    "by key": ("id int, amount int", "id long, amount int, note string", {"on_missing": "null"}, {"key": "id"}),
    "the files are archived": ("id int, amount int", "id long, amount int, note string", {"keep": "rows"}, {}),
}


@pytest.mark.parametrize(
    "case",
    [
        case if case in ("a column is added", "the files are archived") else pytest.param(case, marks=pytest.mark.slow)
        for case in FILES
    ],
)
def test_a_source_of_files_may_have_a_column_more_or_less_and_wider_types(
    case: str, spark: SparkSession, tmp_path: Path
) -> None:
    before, after, options, declared = FILES[case]
    small = pa.array([1, 2], pa.int32())
    _parquet(tmp_path / "in/1.parquet", id=small, amount=small, **({"old": small} if "old" in before else {}))

    def flow(schema: str) -> hf.Flow:
        flow = hf.Flow("shop", log=tmp_path / "log", local=tmp_path / "local", spark=spark, partitions=1)
        flow.source("orders", hf.files(tmp_path / "in", schema=schema, **options), **declared)
        return flow.view("spend", "SELECT id, sum(amount) AS total FROM orders GROUP BY id")

    with flow(before) as first:
        first.run(until="idle")
        first.wait_safe()
    if "keep" in options:
        (tmp_path / "in/1.parquet").rename(tmp_path / "archived.parquet")
    notes = {"note": pa.array(["a", None])} if "note" in after else {}
    _parquet(tmp_path / "in/2.parquet", id=pa.array([2, 3]), amount=pa.array([5, 5], pa.int32()), **notes)
    with flow(after) as second:
        [plan] = [change for change in second.plan().changes if change.name == "spend"]
        assert plan.action == "rebuilds" and plan.bytes > 0
        assert re.fullmatch(r"rebuilds spend \(reads source 'orders' again: [\d.]+ k?B\)", str(plan))
        second.run(until="idle")
        kept = 5 if "key" in declared else 7
        assert sorted(map(tuple, second.read("spend").collect())) == [(1, 1), (2, kept), (3, 5)]
        assert second.last_recovery.otherwise == (), "it is not another Spark that reads it otherwise"


def test_files_that_lack_a_new_column_say_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    _parquet(tmp_path / "in/1.parquet", id=pa.array([1]))
    for schema in ("id long", "id long, note string"):
        flow = hf.Flow("shop", log=tmp_path / "log", local=tmp_path / "local", spark=spark, partitions=1)
        flow.source("orders", hf.files(tmp_path / "in", schema=schema)).view("ids", "SELECT id FROM orders")
        if "note" in schema:
            with pytest.raises(SchemaChanged, match=r"in epochs 0 to 0 it was \(id bigint\).*on_missing='null'"):
                flow.step()
        else:
            flow.step()
        flow.close()


def test_a_source_of_another_kind_under_the_same_name_says_so_and_the_first_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text('{"id": 1}\n')

    def declared(source: hf.Source | None) -> hf.Flow:
        flow = hf.Flow("kinds", log=tmp_path / "log", spark=spark, partitions=1)
        if source is None:
            flow.input("t", "id long")
        else:
            flow.source("t", source)
        return flow.view("v", "SELECT id FROM t")

    def files() -> hf.Source:
        return hf.files(tmp_path / "in", format="json", schema="id long")

    with declared(files()) as flow:
        flow.step()
    for other in (hf.table(spark.range(3)), hf.rate(5), None):
        with declared(other) as flow, pytest.raises(SchemaChanged, match="what the log has of it came from files"):
            flow.step()
    (tmp_path / "in/2.json").write_text('{"id": 2}\n')
    with declared(files()) as flow:
        flow.step()
        assert sorted(flow.read("v").collect()) == [(1,), (2,)]


def test_text_files_of_the_past_that_do_not_fit_a_new_schema_say_so_without_java(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("id,v\n1,x\n")

    def declared(schema: str) -> hf.Flow:
        flow = hf.Flow("texts", log=tmp_path / "log", spark=spark, partitions=1)
        flow.source("t", hf.files(tmp_path / "in", format="csv", schema=schema, options={"header": True}))
        return flow.view("v", "SELECT * FROM t")

    with declared("id long, v string") as flow:
        flow.step()
    with (
        declared("id long, v timestamp") as flow,
        pytest.raises(SchemaChanged, match=r"its schema changed.*1\.csv") as no,
    ):
        flow.step()
    assert "py4j" not in str(no.value).lower() and "org.apache" not in str(no.value)
    with declared("id long, v string") as flow:
        assert flow.read("v").collect() == [(1, "x")]
