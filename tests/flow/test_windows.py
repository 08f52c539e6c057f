"""Window functions in a flow: types and defaults as Spark has them, and rows that move when others come and go."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import HoldfastError, TypeMismatch, Unsupported
from holdfast.testing import Oracle, assert_same_rows

SALES = "id bigint, shop string, amount int, price decimal(10,2)"
VIEWS = {
    "best": """SELECT shop, id, amount FROM (
                 SELECT *, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) AS n FROM sales
               ) WHERE n <= 2""",
    "ties": "SELECT shop, id FROM sales QUALIFY rank() OVER (PARTITION BY shop ORDER BY amount) = 1",
    "running": """SELECT id, sum(price) OVER w AS total, avg(price) OVER w AS mean, stddev(amount) OVER w AS spread,
                    lag(amount, 1, 0.9) OVER (ORDER BY id) AS previous, lead(shop, 2, id) OVER (ORDER BY id) AS later
                  FROM sales WINDOW w AS (PARTITION BY shop ORDER BY id)""",
    "near": """SELECT id, sum(amount) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS ids,
                 count(*) OVER (PARTITION BY shop ORDER BY amount DESC RANGE 1 PRECEDING) AS amounts,
                 count(*) OVER (ORDER BY day RANGE BETWEEN INTERVAL '1' DAY PRECEDING
                                AND INTERVAL '2' DAY FOLLOWING) AS days,
                 count(*) OVER (ORDER BY CAST(day AS timestamp) RANGE BETWEEN INTERVAL 12 HOURS PRECEDING
                                AND UNBOUNDED FOLLOWING) AS hours,
                 count(*) OVER (ORDER BY amount * 0.5D RANGE BETWEEN 0.5 FOLLOWING AND 1 FOLLOWING) AS halves
               FROM (SELECT *, date_add(DATE'2024-02-27', amount) AS day FROM sales)""",
    "ranked": "SELECT shop, sum(amount) AS s, rank() OVER (ORDER BY sum(amount) DESC) AS r FROM sales GROUP BY shop",
}
ROWS = [(i, "abc"[i % 3], (i * 7) % 5, Decimal(f"{i}.50")) for i in range(12)]


def test_views_with_windows_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    oracle = Oracle(spark, {"sales": SALES})
    with hf.Flow("windows", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        sales = flow.input("sales", SALES)
        for name, sql in VIEWS.items():
            flow.view(name, sql)
        for inserted, deleted in ((ROWS[:7], []), (ROWS[7:], ROWS[2:4]), ([(50, None, None, None)], ROWS[5:9])):
            sales.insert(inserted)
            sales.delete(deleted)
            oracle.insert("sales", inserted)
            oracle.delete("sales", deleted)
            flow.step()
            for name, frame in oracle.expect(VIEWS).items():
                assert flow.read(name).schema.simpleString() == frame.schema.simpleString()
                assert_same_rows(flow.read(name), frame, name)
        assert "row_number(), n up to 2" in flow.explain("best")


def test_a_function_that_its_argument_does_not_suit_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("windows", log=tmp_path / "log", spark=spark) as flow:
        flow.input("sales", SALES)
        with pytest.raises(TypeMismatch, match="view 'v'"):
            flow.view("v", "SELECT sum(shop = 'a') OVER (ORDER BY id) AS s FROM sales")


def test_a_frame_by_value_over_a_type_without_exact_reach_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("windows", log=tmp_path / "log", spark=spark) as flow:
        flow.input("sales", SALES)
        with pytest.raises(Unsupported, match=r"RANGE .* PRECEDING over a column of type decimal\(10,2\)"):
            flow.view("v", "SELECT count(*) OVER (ORDER BY price RANGE 1 PRECEDING) AS n FROM sales")


def test_a_sum_that_does_not_fit_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("windows", log=tmp_path / "log", spark=spark) as flow:
        sales = flow.input("sales", SALES)
        flow.view("v", "SELECT sum(id) OVER (ORDER BY id) AS s FROM sales")
        sales.insert([(2**62, "a", 1, None), (2**62 + 1, "a", 1, None)])
        with pytest.raises(HoldfastError, match="does not fit"):
            flow.step()
