"""Views that draw: the clock, chance and answers from outside, kept with the rows and exact in a replay."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DeclarationError, EvaluationError, SchemaError
from holdfast.trace.equality import equal_rows
from holdfast.trace.hashing import hash_columns

VIEWS = {
    "stamped": "SELECT id, now() AS at, current_date() AS day, unix_timestamp() AS s FROM orders",
    "keyed": "SELECT id, uuid() AS k, rand() AS a, rand() AS b, randn() AS n FROM orders",
    "sampled": "SELECT id, x FROM orders WHERE rand() < 0.5",
    "summed": "SELECT city, sum(r) AS s, now() AS at FROM (SELECT city, rand() AS r FROM orders) GROUP BY city",
    "joined": "SELECT a.id, a.k, b.at FROM keyed a JOIN stamped b ON a.id = b.id",
    "asked": "SELECT id, geocode(city) AS place FROM orders WHERE id < 6",
}


def geocoder(calls: Path) -> Any:
    """A function that answers something else at each call, in whatever process it runs."""

    def geocode(city: str) -> str:
        with open(calls, "a") as file:
            file.write(f"{city}\n")
        return f"{city} {len(calls.read_text().splitlines())} {datetime.datetime.now()}"

    return hf.nondeterministic(geocode)


def build(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, Any]:
    flow = hf.Flow("draws", log=tmp_path / "log", spark=spark, partitions=2, retain="all")
    orders = flow.input("orders", "id long, city string, x double")
    flow.udf("geocode", geocoder(tmp_path / "calls"), "string")
    for name, sql in VIEWS.items():
        flow.view(name, sql)
    return flow, orders


def shown(flow: hf.Flow, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in flow.read(view).collect())


ROWS = [(n, f"city{n % 3}", n / 10) for n in range(10)]


def test_values_stay_as_they_were_drawn_and_go_with_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = build(spark, tmp_path)
    with flow:
        orders.insert(ROWS)
        flow.step()
        first = {view: shown(flow, view) for view in VIEWS}
        assert len({row[1] for row in first["keyed"]}) == len({row[2] for row in first["keyed"]}) == 10
        assert all(row[2] != row[3] for row in first["keyed"])
        assert len({row[1] for row in first["stamped"]}) == 1
        assert all(row[2] == row[1].date() for row in first["stamped"])
        assert 0 < len(first["sampled"]) < 10
        orders.insert([(100, "new", 1.0)])
        flow.step()
        for view in ("stamped", "keyed", "sampled", "joined", "asked"):
            assert [row for row in shown(flow, view) if row[0] < 100] == first[view], view
        orders.delete([(100, "new", 1.0), *ROWS[3:]])
        flow.step()
        for view in ("stamped", "keyed", "sampled", "joined", "asked"):
            assert shown(flow, view) == [row for row in first[view] if row[0] < 3], view
        assert len((tmp_path / "calls").read_text().splitlines()) == 6
        orders.delete(ROWS[:3])
        flow.step()
        assert all(shown(flow, view) == [] for view in VIEWS)


def test_a_flow_opened_again_shows_the_values_it_had(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = build(spark, tmp_path)
    with flow:
        orders.insert(ROWS)
        flow.step()
        first = {view: shown(flow, view) for view in VIEWS}
    flow, orders = build(spark, tmp_path)
    with flow:
        assert {view: shown(flow, view) for view in VIEWS} == first
        orders.delete(ROWS)
        flow.step()
        assert all(shown(flow, view) == [] for view in VIEWS)
    assert len((tmp_path / "calls").read_text().splitlines()) == 6


def _same_bits(one: pa.Table, other: pa.Table) -> bool:
    def canonical(change: pa.Table) -> list[pa.Array]:
        columns = [column.combine_chunks() for column in change.columns]
        order = pa.array(np.argsort(hash_columns(columns, normalise=False), kind="stable"))
        return [column.take(order) for column in columns]

    return one.num_rows == other.num_rows and bool(equal_rows(canonical(one), canonical(other)).all())


def test_an_epoch_computed_again_draws_the_same_values_and_asks_nobody(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = build(spark, tmp_path)
    with flow:
        for epoch in range(3):
            orders.insert([(epoch * 2, "a", 0.5), (epoch * 2 + 1, "b", 0.5), (0, "twice", 0.0)])
            if epoch:
                orders.delete([(0, "twice", 0.0)])
            flow.step()
        engine = flow._started()
        asked = (tmp_path / "calls").read_text()
        for epoch in range(3):
            for partitions in (1, 3):
                again = engine.replay(epoch, partitions)
                for view in VIEWS:
                    assert _same_bits(again[view], engine._flow.log_of(view).change_at(epoch)), (
                        view,
                        epoch,
                        partitions,
                    )
        assert (tmp_path / "calls").read_text() == asked


def test_a_view_declared_later_sees_the_values_that_others_show(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = build(spark, tmp_path)
    with flow:
        orders.insert(ROWS[:5])
        flow.step()
        orders.insert(ROWS[5:])
        flow.step()
        flow.view("late", "SELECT id, k FROM keyed WHERE id > 3")
        flow.view("new", "SELECT city, geocode(city) AS place, now() AS at FROM orders")
        flow.view("asked_late", "SELECT place FROM asked WHERE id = 1")
        assert shown(flow, "late") == [row[:2] for row in shown(flow, "keyed") if row[0] > 3]
        assert shown(flow, "asked_late") == [row[1:] for row in shown(flow, "asked") if row[0] == 1]
        assert len(shown(flow, "new")) == 10
        orders.delete(ROWS)
        flow.step()
        assert shown(flow, "late") == shown(flow, "asked_late") == shown(flow, "new") == []


def test_columns_of_pyspark_draw_and_mean_the_same_when_declared_again(spark: SparkSession, tmp_path: Path) -> None:
    def opened() -> tuple[hf.Flow, Any]:
        flow = hf.Flow("columns", log=tmp_path / "log", spark=spark)
        orders = flow.input("orders", "id long")
        columns = [F.current_timestamp().alias("at"), F.rand().alias("r"), F.uuid().alias("k"), F.randn(3).alias("n")]
        flow.view("v", flow.table("orders").select("id", *columns))
        return flow, orders

    flow, orders = opened()
    with flow:
        orders.insert([(1,), (2,)])
        flow.step()
        first = shown(flow, "v")
    flow, orders = opened()
    with flow:
        assert shown(flow, "v") == first


def test_a_function_that_fails_stops_the_epoch_with_its_arguments_named(spark: SparkSession, tmp_path: Path) -> None:
    def fail(city: str) -> str:
        raise LookupError(f"no {city}")

    with hf.Flow("fails", log=tmp_path / "log", spark=spark) as flow:
        orders = flow.input("orders", "id long, city string")
        flow.udf("geocode", hf.nondeterministic(fail), "string")
        flow.view("v", "SELECT id, geocode(city) AS place FROM orders")
        orders.insert([(1, "Atlantis")])
        with pytest.raises(
            EvaluationError, match=r"view 'v': function 'geocode'\('Atlantis'\) raised LookupError.*line \d+"
        ):
            flow.step()


def test_explain_says_what_is_drawn_and_where_it_comes_from(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = build(spark, tmp_path)
    with flow:
        orders.insert(ROWS)
        flow.step()
        text = flow.explain("asked")
        assert "draw geocode(city) as geocode(city)" in text
        assert (
            "are arbitrary: " in text and "draw geocode(city) as geocode(city) (asks a function that is marked" in text
        )
        assert "rows that are read: precise: the lineage of every epoch survives" in text
        assert "draw current_timestamp() as current_timestamp()" in flow.explain("stamped")


def test_a_function_is_refused_if_its_mark_name_or_type_is_wrong(tmp_path: Path) -> None:
    flow = hf.Flow("declared", log=tmp_path / "log")
    marked = hf.nondeterministic(lambda: 1)
    with pytest.raises(DeclarationError, match="say what it returns"):
        flow.udf("geocode", lambda: 1)
    with pytest.raises(DeclarationError, match="Spark has a function of that name"):
        flow.udf("Uuid", marked, "int")
    with pytest.raises(DeclarationError, match="must be one that SQL can call"):
        flow.udf("geo code", marked, "int")
    with pytest.raises(SchemaError, match="udf 'geocode': schema 'intt': the type: 'intt' is not a type"):
        flow.udf("geocode", marked, "intt")
    with pytest.raises(DeclarationError, match="expected a function, found 3"):
        flow.udf("geocode", 3, "int")  # type: ignore[arg-type]
