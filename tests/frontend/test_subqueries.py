"""Subqueries become joins, and mean what SQLite says they mean: with NULLs on either side, empty and missing groups."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from holdfast.errors import SqlError
from holdfast.operators.aggregate import Aggregate
from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.operators.threshold import Threshold
from holdfast.plan.expression import readable
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.walk import reachable

from ..plan.interpreter import run
from ..planned import plan_sql
from .test_sql_means import CATALOG, sqlite_rows

T = [(1, 1, "x"), (1, 1, "x"), (2, None, "y"), (None, 3, None), (3, 0, "x")]
U = [(1, 5, "x"), (1, 0, None), (2, 2, "y"), (7, 1, "x")]
WORLDS: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "no NULL": {"t": T, "u": U},
    "a NULL": {"t": T, "u": [*U, (None, None, None)]},
    "nothing": {"t": T, "u": []},
}

QUERIES = [
    "SELECT * FROM t WHERE a IN (SELECT a FROM u)",
    "SELECT * FROM t WHERE a IN (SELECT a FROM u WHERE d > 1)",
    "SELECT * FROM t WHERE a IN (SELECT u.a FROM u WHERE u.c = t.c)",
    "SELECT * FROM t WHERE (a, c) IN (SELECT a, c FROM u)",
    "SELECT * FROM t WHERE a IN (SELECT max(a) AS m FROM u GROUP BY c)",
    "SELECT * FROM t WHERE a IN (SELECT a FROM u UNION ALL SELECT d FROM u)",
    "SELECT * FROM t WHERE a IN (SELECT a FROM u WHERE u.d > t.b)",
    "SELECT * FROM t WHERE a NOT IN (SELECT a FROM u)",
    "SELECT * FROM t WHERE NOT a IN (SELECT a FROM u WHERE a IS NOT NULL)",
    "SELECT * FROM t WHERE a NOT IN (SELECT u.a FROM u WHERE u.c = t.c)",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE d > 100)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d > 0)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a LIMIT 1)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a + 1)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d > t.b)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a > t.a)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d <> t.b)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a AND t.b <> u.d)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.c = t.c AND u.d <= t.b) AND b > 0",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.c = t.c AND t.b <= u.d)",
    "SELECT * FROM t WHERE a IN (SELECT a FROM u WHERE u.d < t.b)",
    "SELECT a, EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d <> t.b) AS e FROM t",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d + 1 > t.b)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d > t.b AND u.d < t.b + 5)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d > t.b AND u.c <> t.c)",
    "SELECT * FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d IN (SELECT b FROM t AS s WHERE s.a = u.a))",
    "SELECT * FROM t WHERE b > 0 OR EXISTS (SELECT * FROM u WHERE u.a = t.a)",
    "SELECT * FROM t WHERE b > 2 OR EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.d > t.b)",
    "SELECT * FROM t WHERE b > 2 OR NOT EXISTS (SELECT * FROM u WHERE u.d > t.b)",
    "SELECT * FROM t WHERE b > 1 OR a IN (SELECT a FROM u)",
    "SELECT * FROM t WHERE b > 1 OR NOT a IN (SELECT a FROM u)",
    "SELECT * FROM t WHERE (a, b) NOT IN (SELECT a, d FROM u)",
    "SELECT * FROM t WHERE (a, b, c) NOT IN (SELECT a, d, c FROM u)",
    "SELECT * FROM t WHERE (a, b, c, a) NOT IN (SELECT a, d, c, d FROM u)",
    "SELECT * FROM t WHERE (a, b) NOT IN (SELECT a, d FROM u WHERE u.c = t.c)",
    "SELECT * FROM t WHERE a NOT IN (SELECT a FROM u WHERE u.d > t.b)",
    "SELECT * FROM t WHERE b > 0 OR a IN (SELECT a FROM u WHERE u.d > t.b)",
    "SELECT * FROM t WHERE b > 1 OR (a, b) NOT IN (SELECT a, d FROM u)",
    "SELECT * FROM t WHERE b > 1 OR a NOT IN (SELECT u.a FROM u WHERE u.c = t.c)",
    "SELECT t.a AS x FROM t JOIN u ON t.a = u.a AND t.b IN (SELECT d FROM u)",
    "SELECT t.a AS x, u.d AS y FROM t LEFT JOIN u ON t.a = u.a AND t.b IN (SELECT d FROM u)",
    "SELECT a, (SELECT max(d) FROM u WHERE u.a < t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a < t.a) AS m FROM t",
    "SELECT * FROM t WHERE a IN (SELECT max(u.a) FROM u WHERE u.c = t.c GROUP BY u.d)",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND EXISTS (SELECT 1 FROM t AS s WHERE s.b = u.d))",
    "SELECT * FROM t WHERE b = (SELECT max(d) FROM u WHERE EXISTS (SELECT 1 FROM t AS s WHERE s.a = u.a))",
    # As values, IN and NOT IN are false in Spark where they are NULL in SQLite.
    "SELECT a, coalesce(a IN (SELECT d FROM u), false) AS i, EXISTS (SELECT 1 FROM u) AS e FROM t",
    "SELECT a, coalesce(a NOT IN (SELECT a FROM u), false) AS n FROM t",
    "SELECT a, coalesce(a IN (SELECT u.a FROM u WHERE u.c = t.c), false) AS i FROM t",
    "SELECT * FROM t WHERE NOT (b > 1 OR a IN (SELECT a FROM u))",
    "SELECT * FROM t WHERE NOT (b > 1 AND NOT a NOT IN (SELECT a FROM u))",
    "SELECT a, (SELECT max(d) FROM u) AS m FROM t",
    "SELECT a, (SELECT count(*) + sum(d) FROM u) AS m, (SELECT min(a) FROM u WHERE d > 1) AS n FROM t",
    "SELECT a, (SELECT max(u.d) FROM u WHERE u.a = t.a) AS m FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "SELECT a, (SELECT count(u.d) + 1 FROM u WHERE u.a = t.a AND u.c = t.c) AS n FROM t",
    "SELECT * FROM t WHERE b >= (SELECT min(d) FROM u)",
    "SELECT * FROM t WHERE b < (SELECT max(u.d) FROM u WHERE u.a = t.a)",
    "SELECT * FROM t WHERE (SELECT count(*) FROM u WHERE u.a = t.a) = 0",
    "SELECT a, (SELECT d FROM u ORDER BY d DESC LIMIT 1) AS m FROM t",
    "SELECT a FROM t ORDER BY (SELECT max(d) FROM u) + a DESC, a LIMIT 2",
    "SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > (SELECT count(*) FROM u WHERE d > 2)",
    "SELECT c, sum(b) AS s, max((SELECT max(u.d) FROM u WHERE u.c = t.c)) AS m FROM t GROUP BY c",
    "SELECT c, count(*) AS n FROM t GROUP BY c HAVING c IN (SELECT c FROM u)",
    "SELECT sum((SELECT max(u.d) FROM u WHERE u.a = t.a)) AS s FROM t",
    "SELECT t.a AS x, u.d AS y FROM t JOIN u ON t.a = u.a WHERE u.d = (SELECT max(s.d) FROM u AS s WHERE s.a = t.a)",
    "SELECT t.a AS x FROM t LEFT JOIN u ON t.a = u.a WHERE t.b NOT IN (SELECT d FROM u) OR u.d IS NULL",
    "WITH w AS (SELECT a FROM u WHERE d > 0) SELECT * FROM t WHERE a IN (SELECT a FROM w)",
    # With windows: beside them, above them, below them and inside of them.
    "SELECT a, count(b) OVER (PARTITION BY c) AS n FROM t WHERE a NOT IN (SELECT a FROM u)",
    "SELECT a, sum(b) OVER (PARTITION BY c) AS s, (SELECT max(u.d) FROM u WHERE u.a = t.a) AS m FROM t",
    "SELECT a, sum((SELECT max(u.d) FROM u WHERE u.a = t.a)) OVER (PARTITION BY c) AS s FROM t",
    "SELECT a, count(*) OVER (PARTITION BY coalesce(a IN (SELECT a FROM u), false)) AS n FROM t",
    "SELECT a, rank() OVER (ORDER BY (SELECT max(u.d) FROM u WHERE u.a = t.a) DESC) AS n FROM t",
    "SELECT a, coalesce(rank() OVER (ORDER BY b) IN (SELECT a FROM u), false) AS i FROM t",
    "SELECT a FROM (SELECT a, rank() OVER (PARTITION BY c ORDER BY a) AS r FROM t) AS s WHERE r IN (SELECT a FROM u)",
    "SELECT * FROM t WHERE a IN (SELECT row_number() OVER (ORDER BY d) FROM u)",
    "SELECT * FROM t WHERE a IN (SELECT sum(d) OVER (PARTITION BY c) FROM u)",
    "SELECT * FROM t WHERE EXISTS (SELECT max(d) OVER () FROM u)",
    "SELECT a, (SELECT max(n) FROM (SELECT rank() OVER (PARTITION BY c ORDER BY d) AS n FROM u) AS s) AS m FROM t",
    "SELECT a, (SELECT sum(max(d)) OVER () FROM u) AS s FROM t",
    "SELECT c, sum(sum(b)) OVER () AS s FROM t GROUP BY c HAVING count(*) >= (SELECT min(d) FROM u)",
    "SELECT t.a AS x, u.d AS y, count(u.d) OVER (PARTITION BY t.c) AS n FROM t LEFT JOIN u ON t.a = u.a",
    "SELECT rank() OVER (ORDER BY a) AS r FROM t EXCEPT SELECT a FROM u",
]


@cache
def plan(sql: str) -> Node:
    return plan_sql("v", sql, CATALOG)


def test_in_as_a_value_is_false_where_it_is_unknown_as_in_spark() -> None:
    world = {"t": [(1, 1, "x"), (None, 2, "y")], "u": [(2, 2, "x"), (None, 0, None)]}
    node = plan("SELECT a IN (SELECT a FROM u) AS i, a NOT IN (SELECT a FROM u) AS n FROM t")
    assert Counter(run(node, world)) == Counter({(False, False): 2})
    assert not list(run(plan("SELECT a FROM t WHERE (a IN (SELECT a FROM u)) IS NULL"), world))


def joins(sql: str) -> list[Join]:
    return [each for each in reachable(rewrite(plan(sql))) if isinstance(each, Join)]


def kinds(sql: str) -> list[str]:
    """The kinds of the joins and thresholds that the query becomes."""
    found = [each for each in reachable(rewrite(plan(sql))) if isinstance(each, Join | Threshold)]
    return [each.how if isinstance(each, Join) else "threshold" for each in found]


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_subquery_means_what_sqlite_says(sql: str, world: str) -> None:
    node, tables = plan(sql), WORLDS[world]
    expected = Counter(sqlite_rows(sql, tables))
    assert Counter(run(node, tables)) == expected
    assert Counter(run(rewrite(node), tables)) == expected


@pytest.mark.parametrize(
    ("sql", "hows"),
    [
        ("SELECT * FROM t WHERE a IN (SELECT a FROM u)", ["semi"]),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c <=> t.c)", ["semi"]),
        ("SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", ["anti"]),
        ("SELECT * FROM t WHERE a NOT IN (SELECT a FROM u)", ["anti", "anti"]),
        ("SELECT a, (SELECT max(d) FROM u WHERE u.a = t.a) AS m FROM t", ["left"]),
    ],
)
def test_a_subquery_that_decides_alone_is_one_join(sql: str, hows: list[str]) -> None:
    assert [join.how for join in joins(sql)] == hows


@pytest.mark.parametrize(
    ("sql", "hows", "calls"),
    [
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.b)", ["threshold"], ["max"]),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND t.b > u.d)", ["threshold"], ["min"]),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND abs(u.d) > abs(t.b))", ["inner"], ["max"]),
        ("SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d <> t.b)", ["left"], ["min", "max"]),
    ],
)
def test_one_comparison_is_decided_by_the_extremes_of_the_group(sql: str, hows: list[str], calls: list[str]) -> None:
    assert kinds(sql) == hows
    (groups,) = [each for each in reachable(rewrite(plan(sql))) if isinstance(each, Aggregate)]
    assert (len(groups.keys), [call.function for call in groups.calls]) == (1, calls)


def test_what_is_compared_after_a_cast_is_extreme_after_it() -> None:
    # u.c is a text and t.b a number: the greatest text need not be the greatest number.
    node = rewrite(plan("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.b)"))
    (groups,) = [each for each in reachable(node) if isinstance(each, Aggregate)]
    assert isinstance(groups.input, Linear) and "cast" in readable(groups.input.outputs[-1].expression).lower()


@pytest.mark.parametrize("condition", ["u.d + t.b > 1", "u.d > t.b AND u.c > t.c"])
def test_other_comparisons_are_decided_by_the_pairs_that_satisfy_them(condition: str) -> None:
    sql = f"SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND {condition})"
    assert [join.how for join in joins(sql)] == ["inner", "semi"]


def test_the_pairs_are_looked_for_once_per_combination_of_values() -> None:
    sql = "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d + t.b > 1)"
    (asked,) = [each for each in reachable(rewrite(plan(sql))) if isinstance(each, Aggregate)]
    assert len(asked.keys) == 2 and asked.calls == ()


def test_what_asks_no_subquery_filters_before_the_subquery_is_asked() -> None:
    (join,) = joins("SELECT a FROM t WHERE a IN (SELECT a FROM u) AND b > 1")
    assert isinstance(join.left, Linear) and join.left.predicate is not None
    assert readable(join.left.predicate) == "`b` > 1"


def test_a_name_means_the_column_of_the_innermost_query_that_has_it() -> None:
    (join,) = joins("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE c = 'x' AND d = b)")
    assert (join.left_keys, join.right.columns) == (("b",), ("d",))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM t WHERE a IN (SELECT a, d FROM u)", "number of columns"),
        ("SELECT (SELECT max(a), min(a) FROM u) AS m FROM t", "must return only one column, but got 2"),
        (
            "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM u AS s WHERE s.a = t.b))",
            "column 't.b' not found",
        ),
    ],
)
def test_what_spark_cannot_read_is_an_error(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        plan(sql)
