"""Alternatives, taken apart: what they have in common joins, what they say of one relation filters it, and the rows
stay those that SQLite finds."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.plan.expression import readable
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.walk import reachable

from ..plan.interpreter import run
from ..planned import plan_sql
from .test_sql_means import CATALOG, sqlite_rows
from .test_subqueries import WORLDS

QUERIES = [
    "SELECT t.b AS x, u.d AS y FROM t, u WHERE (t.a = u.a AND t.b > 0) OR (t.a = u.a AND u.d > 1)",
    "SELECT t.b AS x, u.d AS y FROM t, u WHERE (t.a = u.a AND t.b = 1 AND u.d = 5) OR (u.d = 0 AND t.a = u.a)",
    "SELECT t.b AS x, u.d AS y FROM t, u WHERE t.a = u.a AND ((t.c = 'x' AND u.c = 'y') OR (t.c = 'y' AND u.c = 'x'))",
    "SELECT t.b AS x, u.d AS y FROM t, u WHERE t.a = u.a OR (t.a = u.a AND t.b > 0)",
    "SELECT t.b AS x, u.d AS y FROM t, u WHERE (t.b > 0 AND u.d > 0) OR (t.b IS NULL AND u.d IS NULL)",
    "SELECT * FROM t WHERE (a = 1 AND b = 1) OR (a = 1 AND c = 'y') OR (a = 1 AND b IS NULL)",
    "SELECT * FROM t WHERE (a > 0 AND b = 1) OR (a > 0 AND a IN (SELECT a FROM u))",
    "SELECT t.a AS x FROM t JOIN u ON (t.a = u.a AND t.b > 0) OR (t.a = u.a AND u.c = 'x') JOIN u AS w ON w.a = t.a",
]


@cache
def plan(sql: str) -> Node:
    return rewrite(plan_sql("v", sql, CATALOG))


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("world", WORLDS)
def test_alternatives_taken_apart_mean_what_sqlite_says(sql: str, world: str) -> None:
    assert Counter(run(plan(sql), WORLDS[world])) == Counter(sqlite_rows(sql, WORLDS[world]))


def test_an_equality_that_all_alternatives_share_is_a_key_to_join_by() -> None:
    (join,) = [each for each in reachable(plan(QUERIES[0])) if isinstance(each, Join)]
    assert join.left_keys == ("a",)


def test_what_alternatives_say_of_one_relation_filters_it_before_the_join() -> None:
    (join,) = [each for each in reachable(plan(QUERIES[2])) if isinstance(each, Join)]
    for side in (join.left, join.right):
        assert isinstance(side, Linear) and side.predicate is not None
        assert readable(side.predicate) in ("`c` = 'x' OR `c` = 'y'", "`c` = 'y' OR `c` = 'x'")


def test_alternatives_of_which_one_is_implied_by_the_others_are_that_one() -> None:
    (join,) = [each for each in reachable(plan(QUERIES[3])) if isinstance(each, Join)]
    assert join.left_keys == ("a",) and not any(
        each.predicate for each in reachable(plan(QUERIES[3])) if isinstance(each, Linear)
    )
