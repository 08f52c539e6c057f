"""Views picked by hand: forms of each construct that a generator would seldom meet, on types whose equality is Spark's
own affair."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from . import edges
from .check import run
from .data import DOMAINS, Change, Row

TABLES = {
    "t": "k string, n bigint, i int, d double, m decimal(12,2), b boolean, s string",
    "u": "k string, n int, i int",
}
PAIRED = {"t": "a bigint, b double, c string, e int", "u": "a int, d double, c string"}
FEW = {
    "bigint": [None, 0, 1, 2],
    "int": [None, 0, 1, 2],
    "double": [None, 0.0, -0.0, math.nan, 1.5],
    "string": [None, "", "x"],
}

SETS = {
    "intersect": "SELECT k, n FROM t INTERSECT SELECT k, n FROM u",
    "intersect_all": "SELECT i FROM t INTERSECT ALL SELECT n FROM u",
    "except": "SELECT k, d FROM t EXCEPT SELECT k, n FROM u",
    "except_all": "SELECT k FROM t WHERE n > 0 EXCEPT ALL SELECT k FROM u",
    "minus_of_union": "SELECT k FROM t UNION ALL SELECT s FROM t MINUS SELECT k FROM u",
    "precedence": "SELECT i FROM t UNION ALL SELECT i FROM u INTERSECT ALL SELECT n FROM u",
    "aggregated_set": "SELECT k, count(*) AS c FROM (SELECT k, i FROM t EXCEPT ALL SELECT k, i FROM u) GROUP BY k",
}
CONDITIONS = {
    "filtered": (
        "SELECT k, count(*) FILTER (WHERE n > 0) AS c, sum(d) FILTER (WHERE i > 0 AND b) AS x, "
        "max(s) FILTER (WHERE s <> 'a') AS m, count(DISTINCT i, s) FILTER (WHERE b) AS p FROM t GROUP BY k"
    ),
    "filtered_all": "SELECT count(n, i) FILTER (WHERE b) AS c, avg(m) FILTER (WHERE n IS NULL) AS a FROM t",
    "truths": (
        "SELECT k, count_if(b) AS c, bool_and(b) AS x, every(n > 0) AS y, bool_or(b) AS z, any(i = 1) AS w, "
        "some(b) FILTER (WHERE n > 1) AS v FROM t GROUP BY k"
    ),
    "distinct_sums": (
        "SELECT k, sum(DISTINCT i) AS s, avg(DISTINCT d) AS a, sum(DISTINCT m) AS m, variance(DISTINCT i) AS v, "
        "max(DISTINCT s) AS x, sum(i) AS y, count(DISTINCT i) AS c, count_if(DISTINCT b) AS f FROM t GROUP BY k"
    ),
    "distinct_all": "SELECT sum(DISTINCT n) FILTER (WHERE b) AS s, stddev(DISTINCT i) AS d FROM t HAVING count(*) > 1",
}
GROUPINGS = {
    "rollup": (
        "SELECT k, b, count(*) AS n, sum(i) AS s, grouping(k) AS g, grouping_id() AS h FROM t "
        "GROUP BY ROLLUP (k, b) HAVING grouping_id(k, b) < 3 OR count(*) > 2"
    ),
    "cube_of_argument": "SELECT i, k, sum(i) AS s, count(DISTINCT k) AS d FROM t GROUP BY CUBE (i, k)",
    "sets": (
        "SELECT k, s, i % 2 AS odd, max(n) AS m, grouping_id(k, s, i % 2) AS g FROM t "
        "GROUP BY GROUPING SETS ((k, s), i % 2, (), (k), (k))"
    ),
    "hive_sets": "SELECT k, b, count(*) AS n FROM t GROUP BY k, b GROUPING SETS ((k), ())",
    "product": "SELECT k, b, s, count(*) AS n, grouping(s) AS g FROM t GROUP BY k, ROLLUP (b), CUBE (s)",
    "with_rollup": "SELECT upper(k) AS u, avg(d) AS a FROM t WHERE n > 0 GROUP BY upper(k) WITH ROLLUP",
    "empty_rollup": "SELECT k, count(*) AS n FROM t WHERE k = 'never' GROUP BY ROLLUP (k)",
    "nested_rollup": (
        "SELECT g, sum(n) AS n FROM (SELECT grouping(k) AS g, count(*) AS n FROM t GROUP BY k WITH CUBE) GROUP BY g"
    ),
}
WHOLES = {
    # Spark's lists are in the order of arrival, ours are sorted: the view is compared with Spark's, sorted.
    "lists": (
        "SELECT k, sort_array(collect_list(n)) AS a, sort_array(collect_set(s)) AS b, sort_array(array_agg(m)) AS c, "
        "sort_array(array_agg(DISTINCT i)) AS d, size(collect_list(d) FILTER (WHERE b)) AS e FROM t GROUP BY k"
    ),
    "lists_of_all": (
        "SELECT sort_array(collect_list(struct(k, i))) AS a, collect_list(n) FILTER (WHERE n < -9e12) AS b FROM t"
    ),
    "percentiles": (
        "SELECT k, median(n) AS a, percentile(d, 0.3) AS b, percentile(m, array(0.25, 0.75D)) AS c, "
        "percentile_cont(0.1) WITHIN GROUP (ORDER BY i DESC) AS d, median(DISTINCT i) AS e, "
        "median(i) FILTER (WHERE b) AS f FROM t GROUP BY k"
    ),
    "median_of_all": "SELECT median(i) AS m, percentile(n, 1) AS p FROM t",
    "modes": "SELECT k, mode() WITHIN GROUP (ORDER BY i) AS m FROM t GROUP BY k",
    "shapes": (
        "SELECT k, skewness(i) AS a, kurtosis(i) AS b, covar_pop(i, i * i + length(s)) AS c, "
        "covar_samp(i, n % 5) AS d, skewness(DISTINCT i) AS e, "
        "covar_pop(i, length(s)) FILTER (WHERE b) AS f FROM t GROUP BY k"
    ),
    "bits": "SELECT k, bit_and(n) AS a, bit_or(i) AS b, bit_xor(n) AS c, bit_xor(DISTINCT i) AS d FROM t GROUP BY k",
    # Ties are settled by the whole value, so only what does not tie is compared.
    "by": (
        "SELECT k, max_by(n, struct(d, n)) AS a, min_by(s, struct(n, s)) AS b, "
        "max_by(i, struct(m, i)) FILTER (WHERE b) AS c, max_by(k, k) AS d FROM t GROUP BY k"
    ),
    "by_of_all": "SELECT max_by(struct(k, n), struct(n, k)).k AS a, min_by(n, n) AS b FROM t",
}
PIVOTS = {
    "pivot": "SELECT * FROM (SELECT k, i, n FROM t) PIVOT (sum(n) FOR i IN (1, 2 AS two, 3))",
    "pivot_several": (
        "SELECT * FROM (SELECT k, b, n, d FROM t) PIVOT (sum(n) AS s, avg(d), count(*) AS c FOR b IN (true, false))"
    ),
    "pivot_texts": "SELECT * FROM (SELECT k, s, i FROM t) PIVOT (max(s) AS m, sum(i) AS c FOR i IN (1, 2))",
    "pivot_pairs": (
        "SELECT * FROM (SELECT k, s, i, n FROM t) PIVOT (sum(n) FOR (s, i) IN (('a', 1) AS a, ('b', 2) AS b))"
    ),
    "pivot_all": "SELECT * FROM (SELECT i, n FROM t) PIVOT (count(n) FOR i IN (1, 77))",
    "pivot_lists": (
        "SELECT k, sort_array(`1_c`) AS a, `2_n` AS b FROM (SELECT k, i, n FROM t) "
        "PIVOT (collect_list(n) AS c, count(*) AS n FOR i IN (1, 2))"
    ),
}
NAMES = {
    "fields_with_marks": "SELECT n, named_struct('a,b', i, 'c:d', s, 'e>f', k, 'g`h', b) AS x FROM t",
    "fields_that_are_numbers": "SELECT n, arrays_zip(array(i), array('a')) AS x FROM t",
    "key_with_marks": "SELECT named_struct('a b', i, 'c<d', k) AS x, count(*) AS c FROM t GROUP BY 1",
    "picked": "SELECT x.`a,b` + 1 AS y FROM (SELECT named_struct('a,b', i, '1', k) AS x FROM t) WHERE x.`1` <> 'q'",
    "joined_by_marks": (
        "SELECT v.n, w.i FROM (SELECT n, named_struct('a,b', i) AS x FROM t) v "
        "JOIN (SELECT i, named_struct('a,b', n) AS x FROM u) w ON v.x = w.x"
    ),
    "many_fields": f"SELECT n, struct({', '.join(f'i AS f{each}' for each in range(40))}) AS x FROM t",
    "deep": "SELECT k, max(map_values(map('m', array(named_struct('a-b', i))))[0]) AS x FROM t GROUP BY k",
    "columns_with_marks": "SELECT n AS `a b`, i AS `c,d`, k AS `e``f`, s AS `1` FROM t",
}
ON = {
    "wide": "t.a = u.a",  # bigint with int: a cast
    "nan": "t.b = u.d",
    "safe": "t.c <=> u.c AND t.a = u.a",
    "one_sided": "t.a = u.a AND t.e > 0 AND u.d > 0",
    "residual": "t.a = u.a AND t.b < u.d",
    "unequal": "t.e < u.a",
}
PADDED = [
    ("LEFT", "wide"), ("LEFT", "nan"), ("LEFT", "residual"), ("RIGHT", "one_sided"), ("FULL", "safe"),
    ("FULL", "unequal"),
]  # fmt: skip
JOINS = {
    f"{kind.lower()}_{name}": f"SELECT t.*, u.a AS ua, u.d AS ud, u.c AS uc FROM t {kind} JOIN u ON {ON[name]}"
    for kind, name in PADDED
}
JOINS |= {
    f"{kind.lower()}_{name}": f"SELECT * FROM t LEFT {kind} JOIN u ON {ON[name]}"
    for kind, name in (("SEMI", "nan"), ("SEMI", "residual"), ("ANTI", "safe"), ("ANTI", "one_sided"))
}
JOINS |= {
    "using": "SELECT c, t.a AS ta, u.a AS ua FROM t FULL JOIN u USING (c)",
    "grouped": "SELECT u.c AS k, count(*) AS n, sum(t.e) AS s FROM t LEFT JOIN u ON t.a = u.a GROUP BY u.c",
    "nested": "SELECT * FROM left_wide LEFT ANTI JOIN u ON left_wide.ua <=> u.a AND left_wide.c = u.c",
}

SUBQUERIES = {
    "within": "SELECT * FROM t WHERE b IN (SELECT d FROM u WHERE u.c = t.c)",
    "not_in": "SELECT * FROM t WHERE e NOT IN (SELECT a FROM u WHERE a > 0 OR d > 1)",
    "not_in_linked": "SELECT * FROM t WHERE b NOT IN (SELECT d FROM u WHERE u.a = t.a)",
    "missing": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.b)",
    "any": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE d > 1)",
    "crossed": "SELECT t.c AS c, count(*) AS n FROM t CROSS JOIN u GROUP BY t.c",
    "either": "SELECT * FROM t WHERE e > 0 OR a IN (SELECT a FROM u) OR NOT EXISTS (SELECT 1 FROM u WHERE u.c = t.c)",
    "total": "SELECT a, b, e + (SELECT count(*) FROM u WHERE d > 0) AS n FROM t WHERE e <= (SELECT max(a) FROM u)",
    "count": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "most": "SELECT a, (SELECT max(d) FROM u WHERE u.c = t.c) AS m FROM t",
    "having": "SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > (SELECT count(*) FROM u WHERE u.c = t.c)",
}


def _kinds(schema: str) -> list[str]:
    return [column.split(" ", 1)[1] for column in schema.split(", ")]


def _many(random: Random, table: str, have: list[Row]) -> Change:
    rows = [tuple(random.choice(DOMAINS[kind]) for kind in _kinds(TABLES[table])) for _ in range(25)]
    return Change(rows, random.sample(have, len(have) // 2), [])


def _few(random: Random, table: str, have: list[Row]) -> Change:
    kinds = _kinds(PAIRED[table])
    rows = [tuple(random.choice(FEW[kind]) for kind in kinds) for _ in range(random.randint(1, 8))]
    return Change(rows, random.sample(have, random.randint(0, len(have))), [])


def test_picked_sets_and_groups_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    views = {**SETS, **CONDITIONS, **GROUPINGS}
    run(spark, tmp_path, 1, views, TABLES, _many, told=lambda view: f"{view} = {views[view]}")


def test_picked_aggregates_pivots_and_names_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    views = {**WHOLES, **PIVOTS, **NAMES}
    run(spark, tmp_path, 2, views, TABLES, _many, told=lambda view: f"{view} = {views[view]}")


def test_picked_joins_and_subqueries_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    views = {**JOINS, **SUBQUERIES}
    run(spark, tmp_path, 3, views, PAIRED, _few, told=lambda view: f"{view} = {views[view]}")


@pytest.mark.parametrize(
    "name",
    [
        "CONSTANT",
        "EXPRESSIONS",
        "THRESHOLDS",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("WIDENED", "SUBQUERIES", "SHAPES")),
    ],
)
def test_views_at_the_edges_equal_the_batch_result(spark: SparkSession, tmp_path: Path, name: str) -> None:
    views = getattr(edges, name)
    run(spark, tmp_path, len(name), views, told=lambda view: f"{view} = {views[view]}")
