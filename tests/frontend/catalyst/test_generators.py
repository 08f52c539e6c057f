"""Generators, lateral subqueries, UNPIVOT and PIVOT as Spark reads them, kept up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from .keeping import check, numbered, refused


def test_generators_make_rows_of_each_row(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select k, explode(xs) from o",
            "select k, p, e from o lateral view outer posexplode(xs) t as p, e",
            "SELECT id, Explode_Outer(xs) AS e FROM o WHERE k > 1",
            "select k, stack(1 + 1, id, u, id + 1, 'x') as (a, b) from o",
            "select inline(array(struct(k, u), struct(k + 1 as k, u))), id from o",
            "select json_tuple(js, 'a', 'b') as (x, y), k from o",
            "select k, explode(m) as (a, b) from o",
            "select a, sum(b) s from o lateral view explode(m) t as a, b group by a",
            "select explode(array_sort(collect_list(u))) from o",
            "select id, e, f from o lateral view explode(xs) x as e lateral view outer explode(xs) y as f",
            lambda table: table("o").select("id", F.posexplode(F.transform("xs", lambda x: x + 1)).alias("p", "c")),
        ),
    )


def test_lateral_subqueries_of_one_row_need_no_join(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select k, t.* from o, lateral explode(xs) t",
            "select id, e from o left join lateral explode(xs) as t(e) on true",
            "select id, key, cast(value as string) v from o, lateral variant_explode(parse_json(o.js))",
            "select id, e from o, lateral (select c + 1 as e from explode(xs) t(c) where c > k)",
            "select id, j from o, lateral (select k + 1 as j) where j > 2",
            "select id, x, y from o, lateral explode(xs) t(x), lateral (select x * 2 as y)",
            "select id, e from o join lateral explode(xs) t(e) on e > id - 3",
        ),
    )


def test_columns_become_rows_and_rows_columns(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select * from (select k, id, amount from o) unpivot (v for n in (k, id))",
            "select * from (select k, id, amount from o) "
            "unpivot include nulls ((v, w) for n in ((k, id) as a, (id, k)))",
            "select * from (select k, u, amount from o) pivot (sum(amount) for u in ('ada', 'bob' as robert))",
            "select * from (select k, u, amount from o) "
            "pivot (sum(amount) as s, count(*) c for u in ('ada', null, 'x'))",
            "select * from (select k, u, d, n from o) "
            "pivot (avg(n) as s for (u, d) in (('ada', date'2024-01-02') as x))",
            "select * from (select k, amount from o) pivot (max(amount) - 1 as m for k in (1, 2))",
            "select * from (select u, id from o) pivot (array_sort(collect_list(id)) for u in ('ada', 'eve'))",
            "select * from (select u, id from o) pivot (max(u) as l, max_by(u, id) m for id in (2, 9, 10))",
            lambda table: (
                table("o").groupBy("u").pivot("k", [1, 2]).agg(F.sum("id").alias("s"), F.count("id").alias("c"))
            ),
            lambda table: table("o").unpivot(["u"], ["k", "id"], "name", "value"),
        ),
    )


def test_one_row_of_those_that_agree_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    first = "select k, u, id from (select *, row_number() over (partition by k order by k, u, id) r from o) where r = 1"
    check(
        spark,
        tmp_path,
        {
            "v0": lambda table: table("o").select("k", "u", "id").dropDuplicates(["k"]),
            "v1": lambda table: table("o").select("k", "u").dropDuplicates(),
            "v2": lambda table: table("o").select("u").distinct(),
            "v3": "select distinct k, upper(u) from o",
        },
        {"v0": first},
    )


@pytest.mark.parametrize(
    ("query", "construct"),
    [
        ("select * from o, lateral sql_keywords()", "the table function sql_keywords"),
        (lambda table: table("o").dropDuplicatesWithinWatermark(["k"]), "dropDuplicatesWithinWatermark"),
    ],
)
def test_what_cannot_be_kept_is_refused(spark: SparkSession, tmp_path: Path, query: str, construct: str) -> None:
    assert refused(spark, tmp_path, query).fields["construct"] == construct
