"""Groups and aggregates as Spark reads them, kept up to date and compared with Spark's answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .keeping import check, numbered, refused


def by(key: str, calls: str) -> str:
    return f"select {key}, {calls} from o group by {key}"


def test_groups_are_kept_whatever_the_spelling(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select k, sum(amount) t, count(*) c, count(distinct u) filter (where amount > 1) d from o group by k",
            "SELECT upper(u) || 'x' AS u, k + 1 AS j, max(amount) + 1 m FROM o GROUP BY upper(u), 1 + k",
            "select k, sum(amount) s, s * 2 as twice from o group by k having count(*) > 1 order by s",
            "select u, avg(n) a from o group by 1",
            "select 1 as one from o having count(*) > 3",
            "select count(distinct *) c from (select k, u from o)",
            "select count(k, u) c, count(null) z, count(distinct k, u) d from o",
            "select k, u, grouping(k) g, grouping_id() i, sum(amount) s from o group by cube(k, u)",
            "select k, u, count(*) c from o group by grouping sets ((k), (u), (k), ())",
            "select 'x' as x, k, count(*) c from o group by 'x', 2",
            "select max(struct(k, u)) m, min(d) d, sum(n) s, avg(k) a from o",
            lambda table: table("o").groupBy("u").agg({"amount": "sum", "k": "max"}),
            lambda table: table("o").groupBy("u").count().where("count > 1"),
        ),
    )


def test_statistics_agree_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    pairs = "corr covar_pop covar_samp regr_count regr_avgx regr_avgy regr_r2 regr_slope regr_intercept regr_sxx "
    calls = [f"{name}(amount, id) as {name}" for name in (pairs + "regr_sxy regr_syy").split()]
    single = ["stddev", "stddev_pop", "variance", "var_pop", "skewness", "kurtosis", "bit_and", "bit_or", "bit_xor"]
    check(
        spark,
        tmp_path,
        numbered(
            f"select u, {', '.join(calls)} from o group by u",
            by("k", "corr(k, id), regr_r2(id, k), regr_slope(id, k), regr_count(k, amount) filter (where id > 2)"),
            f"select k, {', '.join(f'{name}(id) as {name}' for name in single)} from o group by k",
            by("u", "every(amount > 1), some(amount > 1), count_if(amount > 1), std(distinct k)"),
        ),
    )


def test_percentiles_modes_and_lists_agree_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            by("k", "median(amount), percentile(amount, 0.3), percentile(amount, array(0.1, 0.9))"),
            "select k, percentile_cont(0.2) within group (order by id desc) a from o group by k",
            "select k, percentile_disc(0.3) within group (order by amount) a, percentile_disc(0.3) within group "
            "(order by n desc) b, percentile_disc(array(0.5, 1.0)) within group (order by id) c from o group by k",
            by("k", "approx_percentile(amount, 0.4), percentile_approx(d, array(0.1, 0.5), 100)"),
            "select mode() within group (order by u) a, mode() within group (order by u desc) b from o",
            by("k", "max_by(u, id), min_by(amount, id), max_by(id, amount) filter (where id < 9)"),
            by("k", "sort_array(collect_list(u)), sort_array(collect_set(u)), sort_array(array_agg(distinct u))"),
            by("k", "sort_array(collect_list(u) filter (where id > 2))"),
            "select k, approx_count_distinct(u) a, approx_count_distinct(id) filter (where id > 3) b from o group by k",
            "select k, try_sum(id) a, try_avg(n) b, try_sum(id + 9223372036854775800) c from o where id < 7 group by k",
        ),
    )


def test_lists_keep_nulls_where_they_are_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select k, sort_array(collect_list(u) respect nulls) a from o group by k",
            "select k, sort_array(collect_list(u) filter (where id > 2) respect nulls) a from o group by k",
            by("k", "max_by(u, id, 2), min_by(u, id, 1), max_by(u, amount, 2) filter (where id < 3)"),
        ),
    )


def test_listagg_is_sorted(spark: SparkSession, tmp_path: Path) -> None:
    unordered = numbered(
        "select k, listagg(u) a, string_agg(u, ', ') b, listagg(distinct u, '-') c, listagg(id, '+') e "
        "from o group by k"
    )
    ordered = {
        "w0": "select k, listagg(u, ',') within group (order by id) a from o group by k",
        "w1": "select k, listagg(u, ',') within group (order by id desc) a from o group by k",
        "w2": "select k, listagg(u, ',') within group (order by amount desc nulls first, id) a from o group by k",
        "w3": "select listagg(u, '') within group (order by k nulls last, id desc) a from o where id > 99",
        "w4": "select k, listagg(distinct u, ',') within group (order by u desc) a from o group by k",
        "w5": "select k, listagg(encode(u, 'utf-8'), X'00') within group (order by id) a from o group by k",
        "w6": "select k, listagg(u, ',') within group (order by id) filter (where amount > 1) a from o group by k",
    }
    sorted_here = {
        "v0": "select k, listagg(u) within group (order by u) a, string_agg(u, ', ') within group (order by u) b, "
        "listagg(distinct u, '-') within group (order by u) c, "
        "array_join(array_sort(collect_list(cast(id as string))), '+') e from o group by k"
    }
    check(spark, tmp_path, {**unordered, **ordered}, sorted_here)


@pytest.mark.parametrize(
    ("query", "construct"),
    [
        ("select histogram_numeric(id, 3) from o", "the aggregate histogram_numeric"),
        ("select approx_top_k(id) from o", "the aggregate approx_top_k"),
        ("select hll_sketch_agg(id) from o", "the aggregate hll_sketch_agg"),
        ("select percentile(amount, 0.3, id) from o", "percentile with a frequency"),
        ("select covar_pop(distinct id, k) from o", "DISTINCT in covar_pop"),
        ("select median(ts - timestamp'2024-01-01') from o", "median of values of type interval day to second"),
    ],
)
def test_an_aggregate_that_is_not_kept_is_refused_where_it_stands(
    spark: SparkSession, tmp_path: Path, query: str, construct: str
) -> None:
    found = refused(spark, tmp_path, query)
    assert found.fields["construct"] == construct
    assert (found.fields["line"], found.fields["column"]) == (1, 8)
