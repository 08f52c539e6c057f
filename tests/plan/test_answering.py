"""What can be computed from the rows of a view that its reader's plan does not contain any more."""

from __future__ import annotations

import pytest

from holdfast.operators.linear_step import is_native
from holdfast.operators.rewrites import rewrite
from holdfast.plan.answering import answer
from holdfast.plan.dataflow import Given, build
from holdfast.plan.expression import renamed
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Linear, Node, Source
from holdfast.plan.schema import parse_schema
from holdfast.plan.walk import reachable
from tests.plan.interpreter import run

from ..planned import plan_sql

T = Source("t", parse_schema("a bigint, b bigint, c bigint", subject="t"))
U = Source("u", parse_schema("a bigint, d bigint", subject="u"))
W = Source("w", parse_schema("d bigint, e bigint", subject="w"))
TABLES = {
    "t": [(1, 2, 3), (1, 5, 3), (2, 2, 9), (None, 4, 1), (7, None, 0), (2, 2, 9)],
    "u": [(1, 10), (2, 20), (2, 30), (None, 40)],
    "w": [(10, 1), (20, 2), (30, 3), (30, 4)],
}
JOINED = "SELECT t.a, t.b, t.c, u.d FROM t JOIN u ON t.a = u.a"


def _plans(view: str, reader: str) -> tuple[Node, Node]:
    tables: dict[str, Node] = {"t": T, "u": U, "w": W}
    given = rewrite(plan_sql("v", view, tables))
    return given, rewrite(plan_sql("r", reader, {**tables, "v": given}), keep=[given])


def _read(view: str, reader: str) -> set[str]:
    """The sources that are read to compute the reader where the rows of the view are to be had."""
    given, plan = _plans(view, reader)
    return set(build({"r": plan}, {}, is_native, [Given("v", given)]).sources)


def _check_rows(view: str, reader: str) -> None:
    """Whatever is answered from the view has the same rows."""
    given, plan = _plans(view, reader)
    for node in reachable(plan):
        if isinstance(node, Linear) and (found := answer(node, given)) is not None:
            assert found.columns == node.columns
            assert sorted(map(repr, run(found, TABLES))) == sorted(map(repr, run(node, TABLES)))


ANSWERED = [
    (JOINED, "SELECT d, sum(b) AS s FROM v GROUP BY d"),
    (JOINED, "SELECT d, sum(b) AS s FROM v WHERE c > 1 GROUP BY d"),
    (JOINED + " WHERE t.b < u.d", "SELECT d, count(*) AS n FROM v GROUP BY d"),
    (JOINED + " WHERE t.b < u.d", "SELECT d, count(*) AS n FROM v WHERE a = 1 GROUP BY d"),
    ("SELECT a, b * 2 AS twice, c FROM t WHERE c > 0", "SELECT a, sum(twice + 1) AS s FROM v GROUP BY a"),
    ("SELECT a AS x, 5 AS five FROM t WHERE b > 1", "SELECT x, sum(five) AS s FROM v WHERE x > 1 GROUP BY x"),
    ("SELECT a, b FROM t WHERE b > 1", "SELECT DISTINCT a FROM v"),
    ("SELECT a, sum(b) + 1 AS s, count(*) AS n FROM t GROUP BY a", "SELECT s, count(*) AS m FROM v GROUP BY s"),
    (JOINED + " WHERE t.b < u.d", "SELECT v.b, v.d, x.c FROM v JOIN v AS x ON v.a = x.b"),
    ("SELECT a, c FROM t WHERE b > 1", "SELECT a, c FROM v WHERE a > 0 ORDER BY c LIMIT 2"),
    ("SELECT a, c FROM t WHERE b > 1", "SELECT a FROM v UNION ALL SELECT c FROM v WHERE a > 1"),
]


@pytest.mark.parametrize(("view", "reader"), ANSWERED)
def test_what_was_fused_with_a_view_is_computed_from_its_rows(view: str, reader: str) -> None:
    assert fingerprint(_plans(view, reader)[0]) not in map(fingerprint, reachable(_plans(view, reader)[1])), "fused"
    assert _read(view, reader) == {"v"}
    _check_rows(view, reader)


@pytest.mark.parametrize(
    "reader",
    [
        "SELECT w.e, sum(v.b) AS s FROM v JOIN w ON v.d = w.d GROUP BY w.e",
        "SELECT v.c, w.e, u.d FROM w JOIN v ON v.d = w.d JOIN u ON u.a = v.a",
        "SELECT v.c, w.e FROM v LEFT JOIN w ON v.d = w.d WHERE v.a = 2",
        "SELECT v.c FROM v WHERE EXISTS (SELECT 1 FROM w WHERE w.d = v.d) AND v.b > 0",
    ],
)
def test_a_view_that_is_joined_with_others_is_read_in_its_place(reader: str) -> None:
    view = JOINED + " WHERE t.b < u.d"
    assert "v" in _read(view, reader) and "t" not in _read(view, reader)
    _check_rows(view, reader)


@pytest.mark.parametrize(
    ("view", "reader"),
    [
        ("SELECT a, b FROM t WHERE b > 1", "SELECT a, sum(b) AS s FROM t GROUP BY a"),
        ("SELECT a, b FROM t WHERE b > 1", "SELECT a, sum(b) AS s FROM t WHERE b > 0 GROUP BY a"),
        ("SELECT a, b FROM t WHERE b > 1", "SELECT a, sum(c) AS s FROM t WHERE b > 1 GROUP BY a"),
        ("SELECT a, b * 2 AS twice FROM t", "SELECT a, sum(b) AS s FROM t GROUP BY a"),
        ("SELECT a, 2 AS two FROM t", "SELECT sum(b * 2) AS s FROM t"),
        (JOINED, "SELECT t.b, u.d FROM t LEFT JOIN u ON t.a = u.a"),
    ],
)
def test_rows_that_do_not_say_enough_are_not_read(view: str, reader: str) -> None:
    assert "v" not in _read(view, reader)


def test_a_function_that_takes_names_from_its_columns_keeps_them_over_another_column() -> None:
    table = Source("t", parse_schema("x array<bigint>, y bigint", subject="t"))
    view = rewrite(plan_sql("v", "SELECT x AS z, y FROM t WHERE y > 1", {"t": table}))
    reader = plan_sql("r", "SELECT arrays_zip(x) AS zipped FROM t WHERE y > 1", {"t": table})
    assert isinstance(reader, Linear)
    found = answer(reader, view)
    assert isinstance(found, Linear)
    moved = renamed(reader.outputs[0].expression, {"x": "z"})
    assert found.outputs[0].expression == moved  # its name for the field is x
