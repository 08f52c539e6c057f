"""Views that are spelled as people spell them equal Spark's batch result of the same text."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from .check import run

ROWS = "(select distinct id, user, amount from orders)"
"""Rows whose order is certain."""

VIEWS = {
    "rows_frame": "select id, sum(amount) over (partition by user order by id, amount rows between 1 preceding and "
    f"1 following) as z from {ROWS}",
    "unbounded": "select id, sum(amount) over (partition by user order by id, amount rows between unbounded preceding "
    f"and current row) as z from {ROWS}",
    "short_frame": "select id, Sum(amount) Over (Partition By user Order By id, amount Rows 2 Preceding) as z "
    f"from {ROWS}",
    "commented": "select user, /* how many */ count(*) as n from orders group /* per */ by user -- that is all",
    "null_alias": "select amount isnull from orders",
    "semi_using": "select * from users left semi join (select user as name, id from orders) o using (name)",
    "anti_using": "select * from users left anti join (select user as name, id from orders) o using (name)",
    "several_distinct": "select count(distinct user, id) as z from orders",
    "casts": "select id::string as a, int(id % 100) as b from orders where id != 1 and not id <> id",
}


def test_views_in_small_letters_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, 7, VIEWS)
