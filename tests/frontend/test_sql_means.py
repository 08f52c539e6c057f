"""A plan means what its SQL means: random queries, planned and interpreted, against SQLite on the same rows.

SQLite and Spark agree on the queries that `queries` generates. The plan is checked as it is planned and rewritten.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import pytest

from holdfast.operators.rewrites import rewrite
from holdfast.plan.nodes import Field, Source

from ..plan.interpreter import run
from ..planned import plan_sql
from .queries import TABLES, Maker, Rows

TYPES = {"int": "int", "str": "string"}
CATALOG = {
    name: Source(name, tuple(Field(column, TYPES[kind]) for column, kind in columns.items()))
    for name, columns in TABLES.items()
}


def sqlite_rows(sql: str, tables: Rows) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' for _ in columns)})", tables[name])
    return connection.execute(sql).fetchall()


def check(seed: int) -> bool:
    """Whether the plan could be interpreted: one with an expression of Spark's own cannot."""
    maker = Maker(seed)
    query, tables = maker.query(), maker.rows()
    plan = plan_sql("v", query.sql, CATALOG)
    better = rewrite(plan)
    if "_hf_" in repr(plan):
        return False
    assert plan.columns == better.columns == tuple(query.columns), (seed, query.sql)
    expected = Counter(sqlite_rows(query.sql, tables))
    assert Counter(run(plan, tables)) == expected, (seed, query.sql)
    assert Counter(run(better, tables)) == expected, (seed, query.sql)
    assert rewrite(better) is better, (seed, query.sql)
    return True


@pytest.mark.parametrize("block", range(4))
def test_a_plan_and_its_rewrite_have_the_rows_that_sqlite_finds(block: int) -> None:
    assert sum(check(seed) for seed in range(block * 40, block * 40 + 40)) > 20


@pytest.mark.slow
def test_many_more_plans_have_the_rows_that_sqlite_finds() -> None:
    assert sum(check(seed) for seed in range(1_000, 3_000)) > 1_000
