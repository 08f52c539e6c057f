"""Joins in SQL: what each kind becomes, and that it means what SQLite says, NULLs and all."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.plan.dataflow import build
from holdfast.plan.explain import explain
from holdfast.plan.expression import readable
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.walk import reachable

from ..plan.interpreter import run
from ..planned import plan_sql
from .test_sql_means import CATALOG, sqlite_rows

TABLES = {
    "t": [(1, 1, "x"), (1, 1, "x"), (2, None, "y"), (None, 3, None), (3, 0, "x")],
    "u": [(1, 5, "x"), (1, 0, None), (2, 2, "y"), (None, None, None), (7, 1, "x")],
}


@cache
def plan(sql: str) -> Node:
    return plan_sql("v", sql, CATALOG)


def joins(node: Node) -> list[Join]:
    return [each for each in reachable(node) if isinstance(each, Join)]


def rows(sql: str) -> Counter[tuple[object, ...]]:
    node = plan(sql)
    found = Counter(run(node, TABLES))
    assert Counter(run(rewrite(node), TABLES)) == found
    return found


@pytest.mark.parametrize(
    ("written", "how"),
    [
        ("JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT JOIN", "left"),
        ("FULL JOIN", "full"),
        ("FULL OUTER JOIN", "full"),
    ],
)
def test_each_kind_of_join_is_one_node(written: str, how: str) -> None:
    (join,) = joins(plan(f"SELECT t.b, u.d FROM t {written} u ON t.a = u.a"))
    assert join.how == how
    assert set(join.left_keys + join.right_keys) == {"a", "a_2"}


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
@pytest.mark.parametrize(
    "on",
    [
        "t.a = u.a",
        "t.a = u.a AND t.c = u.c",
        "t.a = u.a AND t.b > 0",
        "t.a = u.a AND u.d > 0",
        "t.a = u.a AND t.b < u.d",
        "t.a = u.a AND t.a = u.d",
        "t.a < u.a",
        "t.b > 0",
        "1 = 0",
    ],
)
def test_a_join_has_the_rows_that_sqlite_finds(kind: str, on: str) -> None:
    sql = f"SELECT t.a AS x, t.b AS y, t.c AS z, u.a AS p, u.d AS q, u.c AS r FROM t {kind} u ON {on}"
    assert rows(sql) == Counter(sqlite_rows(sql, TABLES))


@pytest.mark.parametrize("on", ["t.a = u.a", "t.a = u.a AND t.b < u.d", "t.a = u.a AND t.b > 0", "t.a < u.d"])
def test_semi_and_anti_joins_are_exists_and_not_exists(on: str) -> None:
    for word, condition in (("SEMI", "EXISTS"), ("ANTI", "NOT EXISTS")):
        expected = sqlite_rows(f"SELECT * FROM t WHERE {condition} (SELECT 1 FROM u WHERE {on})", TABLES)
        assert rows(f"SELECT * FROM t LEFT {word} JOIN u ON {on}") == Counter(expected)
        assert rows(f"SELECT * FROM t {word} JOIN u ON {on}") == Counter(expected)


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_null_safe_equality_is_a_key(kind: str) -> None:
    sql = f"SELECT t.b AS y, u.d AS q FROM t {kind} u ON t.a <=> u.a"
    (join,) = joins(plan(sql))
    assert join.null_safe == (True,)
    assert rows(sql) == Counter(sqlite_rows(sql.replace("<=>", "IS"), TABLES))


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_using_shows_the_key_of_the_side_that_has_it(kind: str) -> None:
    sql = f"SELECT a, b, d FROM t {kind} u USING (a)"
    assert rows(sql) == Counter(sqlite_rows(sql, TABLES))
    assert plan(f"SELECT t.c AS tc, u.c AS uc, a FROM t {kind} u USING (a)").columns == ("tc", "uc", "a")
    assert plan(f"SELECT * EXCEPT (t.c, u.c) FROM t {kind} u USING (a)").columns == ("a", "b", "d")


def test_a_comma_binds_as_tightly_as_a_join_as_in_spark() -> None:
    sql = "SELECT x.a AS p, t.b AS q, u.d AS r FROM t AS x, t RIGHT JOIN u ON t.a = u.a"
    expected = sqlite_rows(
        "SELECT y.p, y.b, u.d FROM (SELECT x.a AS p, t.a, t.b FROM t AS x, t) AS y RIGHT JOIN u ON y.a = u.a", TABLES
    )
    assert rows(sql) == Counter(expected)


def test_a_join_without_a_condition_pairs_everything() -> None:
    for sql in ("SELECT t.b AS x, u.d AS y FROM t, u", "SELECT t.b AS x, u.d AS y FROM t CROSS JOIN u"):
        (join,) = joins(plan(sql))
        assert join.left_keys == join.right_keys == ()
        assert rows(sql) == Counter(sqlite_rows(sql, TABLES))


def test_a_filter_moves_below_the_side_that_is_kept_and_no_other() -> None:
    node = rewrite(plan("SELECT t.b AS x, u.d AS y FROM t LEFT JOIN u ON t.a = u.a WHERE t.b > 1 AND u.d IS NULL"))
    assert isinstance(node, Linear)
    assert node.predicate is not None and readable(node.predicate) == "`d` IS NULL"
    (join,) = joins(node)
    assert isinstance(join.left, Linear)
    assert join.left.predicate is not None and readable(join.left.predicate) == "`b` > 1"


def test_a_semi_join_keeps_nothing_of_its_right_side_but_the_key() -> None:
    (join,) = joins(rewrite(plan("SELECT t.b AS x FROM t LEFT SEMI JOIN u ON t.a = u.a")))
    assert join.right.columns == ("a_2",)


def test_each_kind_of_join_has_its_own_fingerprint_and_an_inner_join_the_one_it_had() -> None:
    t, u = CATALOG["t"], CATALOG["u"]
    kinds = [Join(t, u, ("a",), ("a",), how) for how in ("inner", "left", "full", "semi", "anti")]
    kinds.append(Join(t, u, ("a",), ("a",), "inner", (True,)))
    marks = [fingerprint(each) for each in kinds]
    assert len(set(marks)) == len(marks)
    assert marks[0] == "9892d551d688ffa5"


def test_rows_of_an_outer_join_lie_by_the_key_of_the_side_that_is_kept() -> None:
    t, u = CATALOG["t"], CATALOG["u"]
    u = Linear(u, None, plan("SELECT a AS ua, d AS ud FROM u").outputs)  # type: ignore[union-attr]
    spreads = {}
    for how in ("inner", "left", "full", "semi", "anti"):
        node = Join(t, u, ("a",), ("ua",), how)  # type: ignore[arg-type]
        flow = build({"v": node}, {}, lambda _: True)
        spreads[how] = flow.operators[fingerprint(node)].part.spread
    assert spreads == {"inner": ((0,), (3,)), "left": ((0,),), "full": (), "semi": ((0,),), "anti": ((0,),)}


def test_explain_says_what_is_joined_how_and_when_a_side_is_scanned() -> None:
    def shown(sql: str) -> str:
        return explain(build({"v": rewrite(plan(sql))}, {}, lambda _: True), "v")

    assert "left join on a = a_2" in shown("SELECT t.b AS x, u.d AS y FROM t LEFT JOIN u ON t.a = u.a")
    assert "anti join on a <=> a_2" in shown("SELECT t.b AS x FROM t LEFT ANTI JOIN u ON t.a <=> u.a")
    assert "the other side is scanned" in shown("SELECT t.b AS x, u.d AS y FROM t JOIN u ON t.a < u.a")
