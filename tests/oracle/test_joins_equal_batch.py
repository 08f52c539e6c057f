"""Joins of every kind, on types whose equality is Spark's own affair, equal Spark's batch result after every epoch.

The generator meets these constructs at random; here each is met for certain.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.testing import Oracle, assert_same_rows

TABLES = {"t": "a bigint, b double, c string, e int", "u": "a int, d double, c string"}
DOMAINS = {
    "bigint": [None, 0, 1, 2],
    "int": [None, 0, 1, 2],
    "double": [None, 0.0, -0.0, math.nan, 1.5],
    "string": [None, "", "x"],
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
VIEWS = {
    f"{kind.lower()}_{name}": f"SELECT t.*, u.a AS ua, u.d AS ud, u.c AS uc FROM t {kind} JOIN u ON {ON[name]}"
    for kind, name in PADDED
}
VIEWS |= {
    f"{kind.lower()}_{name}": f"SELECT * FROM t LEFT {kind} JOIN u ON {ON[name]}"
    for kind, name in (("SEMI", "nan"), ("SEMI", "residual"), ("ANTI", "safe"), ("ANTI", "one_sided"))
}
VIEWS |= {
    "using": "SELECT c, t.a AS ta, u.a AS ua FROM t FULL JOIN u USING (c)",
    "grouped": "SELECT u.c AS k, count(*) AS n, sum(t.e) AS s FROM t LEFT JOIN u ON t.a = u.a GROUP BY u.c",
    "nested": "SELECT * FROM left_wide LEFT ANTI JOIN u ON left_wide.ua <=> u.a AND left_wide.c = u.c",
}

SUBQUERIES = {
    "within": "SELECT * FROM t WHERE b IN (SELECT d FROM u WHERE u.c = t.c)",
    "not_in": "SELECT * FROM t WHERE e NOT IN (SELECT a FROM u WHERE a > 0 OR d > 1)",
    "not_in_linked": "SELECT * FROM t WHERE b NOT IN (SELECT d FROM u WHERE u.a = t.a)",
    "missing": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.b)",
    "differs": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d <> t.b)",
    "alone": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.c = t.c AND u.d <> t.b)",
    "paired": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.e AND u.c <> t.c)",
    "any": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE d > 1)",
    "crossed": "SELECT t.c AS c, count(*) AS n FROM t CROSS JOIN u GROUP BY t.c",
    "either": "SELECT * FROM t WHERE e > 0 OR a IN (SELECT a FROM u) OR NOT EXISTS (SELECT 1 FROM u WHERE u.c = t.c)",
    "total": "SELECT a, b, e + (SELECT count(*) FROM u WHERE d > 0) AS n FROM t WHERE e <= (SELECT max(a) FROM u)",
    "count": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "most": "SELECT a, (SELECT max(d) FROM u WHERE u.c = t.c) AS m FROM t",
    "having": "SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > (SELECT count(*) FROM u WHERE u.c = t.c)",
}


def change(random: Random, schema: str, have: list[tuple[object, ...]]) -> tuple[list[tuple[object, ...]], ...]:
    kinds = [column.split()[1] for column in schema.split(", ")]
    new = [tuple(random.choice(DOMAINS[kind]) for kind in kinds) for _ in range(random.randint(1, 8))]
    return new, random.sample(have, random.randint(0, len(have)))


def check(spark: SparkSession, directory: Path, views: dict[str, str], epochs: int = 3, seed: int = 5) -> None:
    random, oracle = Random(seed), Oracle(spark, TABLES)
    with hf.Flow("joins", log=directory, spark=spark, partitions=2) as flow:
        inputs = {table: flow.input(table, schema) for table, schema in TABLES.items()}
        for view, sql in views.items():
            flow.view(view, sql)
        for epoch in range(epochs):
            for table, schema in TABLES.items():
                new, gone = change(random, schema, list(oracle.rows(table)))
                inputs[table].insert(new)
                inputs[table].delete(gone)
                oracle.insert(table, new)
                oracle.delete(table, gone)
            flow.step()
            for view, expected in oracle.expect(views).items():
                assert_same_rows(flow.read(view), expected.toArrow(), f"epoch {epoch}: {view} = {views[view]}")


def test_every_kind_of_join_equals_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, VIEWS)


def test_every_kind_of_subquery_equals_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, SUBQUERIES, seed=6)
