"""From plans to paths: which rows go where, and how often."""

from __future__ import annotations

import pytest

from holdfast.operators.linear_step import is_native
from holdfast.operators.rewrites import rewrite
from holdfast.plan.dataflow import Dataflow, build
from holdfast.plan.nodes import Source
from holdfast.plan.schema import parse_schema

from ..planned import plan_sql

T = Source("t", parse_schema("a bigint, b bigint", subject="t"))


def _flow(*queries: str) -> Dataflow:
    views = {f"v{place}": rewrite(plan_sql("v", sql, {"t": T})) for place, sql in enumerate(queries)}
    return build(views, {"t": T}, is_native)


@pytest.mark.parametrize(
    ("sql", "paths"),
    [
        ("SELECT a FROM t UNION ALL SELECT a FROM t", 2),
        ("SELECT a FROM t WHERE a > 1 UNION ALL SELECT a FROM t WHERE a > 1 UNION ALL SELECT b FROM t", 3),
        ("SELECT count(*) AS n FROM t UNION ALL SELECT count(*) AS n FROM t", 2),
    ],
)
def test_a_union_of_equal_branches_has_each_row_twice(sql: str, paths: int) -> None:
    flow = _flow(sql)
    assert len(flow.into(flow.views["v0"])) == paths


@pytest.mark.parametrize(
    "sql", ["SELECT a FROM t LIMIT 3", "SELECT a, count(*) AS n FROM t GROUP BY a", "SELECT * FROM t"]
)
def test_a_view_that_is_declared_twice_has_its_rows_once(sql: str) -> None:
    assert len(_flow(sql, sql).paths) == len(_flow(sql).paths)
